"""MobileNetV2: bottlenecks that widen, filter each channel by itself, and narrow."""
from layers import Layers

#: Widening, channels, blocks and first stride of each stage.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
          (6, 160, 3, 2), (6, 320, 1, 1))


class MobileNetV2(Layers):
    def __init__(self, size=224, classes=1000, batch=1, seed=27):
        super().__init__(seed)
        self.size, self.classes, self.batch = size, classes, batch

    def convolution(self, x, inputs, outputs, kernel, stride, name, groups=1, limit=True):
        gain = (2 * groups / (inputs * kernel**2))**0.5
        weight = self.weight(f"{name}.weight", self.draw(outputs, inputs // groups, kernel,
                                                         kernel, gain=gain))
        bias = self.weight(f"{name}.bias", self.draw(outputs, gain=0.1))
        x = self.node("Conv", [x, weight, bias], name, kernel_shape=[kernel] * 2,
                      strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups)
        return self.node("Relu", [x], f"{name}.relu") if limit else x

    def block(self, x, inputs, outputs, widening, stride, name):
        width, y = inputs * widening, x
        if widening != 1:
            y = self.convolution(y, inputs, width, 1, 1, f"{name}.widen")
        y = self.convolution(y, width, width, 3, stride, f"{name}.filter", groups=width)
        y = self.convolution(y, width, outputs, 1, 1, f"{name}.narrow", limit=False)
        if stride == 1 and inputs == outputs:
            y = self.node("Add", [x, y], f"{name}.residual")
        return y

    def build(self):
        x = self.input("images", [self.batch, 3, self.size, self.size])
        x, width = self.convolution(x, 3, 32, 3, 2, "stem"), 32
        for stage, (widening, outputs, blocks, first) in enumerate(STAGES):
            for i in range(blocks):
                x = self.block(x, width, outputs, widening, first if i == 0 else 1,
                               f"stage_{stage}.{i}")
                width = outputs
        x = self.convolution(x, width, 1280, 1, 1, "last")
        x = self.node("GlobalAveragePool", [x], "pool")
        x = self.node("Flatten", [x], "flatten")
        weight = self.weight("head.weight", self.draw(self.classes, 1280, gain=1280**-0.5))
        bias = self.weight("head.bias", self.draw(self.classes, gain=0.1))
        self.node("Gemm", [x, weight, bias], "head", ["logits"], transB=1)
        self.output("logits", [self.batch, self.classes])
        return self.model("mobilenet")
