"""Residual networks of bottleneck or plain blocks; wide ones have more channels inside."""
from layers import Layers

#: Blocks per stage and whether they are bottlenecks, by depth.
DEPTHS = {14: ((1, 1, 1, 1), True), 18: ((2, 2, 2, 2), False), 50: ((3, 4, 6, 3), True),
          101: ((3, 4, 23, 3), True)}


class ResNet(Layers):
    TINY = dict(channels=8, size=32, classes=10, batch=2)
    SMALL = dict(channels=16, size=64, classes=100, batch=4)

    def __init__(self, layers, channels=64, wideness=1, size=224, classes=1000, batch=32,
                 seed=25):
        super().__init__(seed)
        if layers not in DEPTHS:
            raise ValueError(f"there is no residual network of {layers} layers, only of "
                             f"{', '.join(map(str, DEPTHS))}")
        self.stages, self.bottleneck = DEPTHS[layers]
        self.channels, self.wideness, self.size = channels, wideness, size
        self.classes, self.batch = classes, batch

    def convolution(self, x, inputs, outputs, kernel, stride, name, relu):
        gain = (2 / (inputs * kernel**2))**0.5
        weight = self.weight(f"{name}.weight",
                             self.draw(outputs, inputs, kernel, kernel, gain=gain))
        x = self.node("Conv", [x, weight], name, kernel_shape=[kernel] * 2,
                      strides=[stride] * 2, pads=[kernel // 2] * 4)
        # A scale of a half keeps sums over residual branches at the size of one.
        statistics = [self.weight(f"{name}.norm.{part}", self.draw(outputs, gain=gain,
                                                                   mean=mean))
                      for part, gain, mean in (("weight", 0.1, 0.5), ("bias", 0.1, 0),
                                               ("mean", 0.1, 0), ("variance", 0.02, 1))]
        x = self.node("BatchNormalization", [x, *statistics], f"{name}.norm")
        return self.node("Relu", [x], f"{name}.relu") if relu else x

    def block(self, x, inputs, filters, stride, name):
        if self.bottleneck:
            inner, outputs = filters * self.wideness, filters * 4
            y = self.convolution(x, inputs, filters, 1, 1, f"{name}.conv_1", relu=True)
            y = self.convolution(y, filters, inner, 3, stride, f"{name}.conv_2", relu=True)
            y = self.convolution(y, inner, outputs, 1, 1, f"{name}.conv_3", relu=False)
        else:
            outputs = filters
            y = self.convolution(x, inputs, filters, 3, stride, f"{name}.conv_1",
                                 relu=True)
            y = self.convolution(y, filters, outputs, 3, 1, f"{name}.conv_2", relu=False)
        if stride != 1 or inputs != outputs:
            x = self.convolution(x, inputs, outputs, 1, stride, f"{name}.project",
                                 relu=False)
        total = self.node("Add", [x, y], f"{name}.residual")
        return self.node("Relu", [total], f"{name}.relu"), outputs

    def build(self):
        x = self.input("images", [self.batch, 3, self.size, self.size])
        x = self.convolution(x, 3, self.channels, 7, 2, "stem", relu=True)
        x = self.node("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2],
                      pads=[1, 1, 1, 1])
        width = self.channels
        for stage, blocks in enumerate(self.stages):
            for i in range(blocks):
                stride = 2 if stage > 0 and i == 0 else 1
                x, width = self.block(x, width, self.channels * 2**stage, stride,
                                      f"stage_{stage}.{i}")
        x = self.node("GlobalAveragePool", [x], "pool")
        x = self.node("Flatten", [x], "flatten")
        weight = self.weight("head.weight", self.draw(self.classes, width,
                                                      gain=width**-0.5))
        bias = self.weight("head.bias", self.draw(self.classes, gain=0.1))
        self.node("Gemm", [x, weight, bias], "head", ["logits"], transB=1)
        self.output("logits", [self.batch, self.classes])
        return self.model("resnet")
