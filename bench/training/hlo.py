"""Counts what one rank's compiled HLO receives from others and multiplies."""
import math
import re
from collections import defaultdict

INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)$")
SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4,
         "s64": 8, "u64": 8, "f64": 8}
COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all",
               "collective-permute")
#: Ops whose result has the elements of their operand: a slice behind them is one of it.
VIEWS = ("bitcast", "copy", "reshape", "transpose", "convert", "get-tuple-element")


class Instruction:
    def __init__(self, computation, name, shape, opcode, rest):
        self.computation, self.name, self.opcode, self.rest = computation, name, opcode, rest
        self.shapes = [(kind, [int(n) for n in dims.split(",") if n])
                       for kind, dims in SHAPE.findall(shape)]
        operands = rest[:rest.find(")")]
        self.operands = re.findall(r"%([\w.-]+)", operands)

    def bytes(self):
        return sum(BYTES[kind] * math.prod(dims) for kind, dims in self.shapes)

    def list(self, attribute):
        found = re.search(attribute + r"=\{([\d,]*)\}", self.rest)
        return [int(n) for n in found[1].split(",") if n] if found else []


class Program:
    def __init__(self, text):
        self.all, self.users, computation = {}, defaultdict(list), None
        for line in text.splitlines():
            if line and not line[0].isspace() and line.rstrip().endswith("{"):
                computation = line.replace("ENTRY ", "").split(" ")[0].lstrip("%")
            found = INSTRUCTION.match(line)
            if found and computation:
                it = Instruction(computation, *found.groups())
                self.all[computation, it.name] = it
                for operand in it.operands:
                    self.users[computation, operand].append(it)

    def slices(self, it):
        """The slices that alone read a value, or nothing if somebody reads it whole."""
        found = []
        for user in self.users[it.computation, it.name]:
            if user.opcode == "dynamic-slice":
                inner = [user]
            elif user.opcode in VIEWS:
                inner = self.slices(user)
            elif user.opcode == "fusion":
                inner = self.slices_in(user, user.operands.index(it.name))
            else:
                inner = []
            if not inner:
                return []
            found += inner
        return found

    def slices_in(self, fusion, operand):
        callee = re.search(r"calls=%([\w.-]+)", fusion.rest)[1]
        for (computation, _), it in self.all.items():
            if (computation == callee and it.opcode == "parameter" and
                    it.rest.startswith(f"{operand})")):
                return self.slices(it)
        return []

    def group(self, it):
        """Ranks that exchange something with each other."""
        if found := re.search(r"replica_groups=mesh\[([^\]]*)\].*?\{('.*?)\}", it.rest):
            sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", found[1])}
            return math.prod(int(part or sizes[name]) for name, part in re.findall(
                r"'(\w+)'(?::\(\d+\)(\d+))?", found[2]))
        if found := re.search(r"replica_groups=\[\d+,(\d+)\]", it.rest):
            return int(found[1])
        return len(re.search(r"replica_groups=\{\{([\d,]+)\}", it.rest)[1].split(","))

    def received(self):
        """Bytes by kind of collective. A sum of which every rank reads a part only counts as
        a reduce-scatter: the CPU has none of its own."""
        counts, total = defaultdict(int), 0
        for it in self.all.values():
            kind = it.opcode.removesuffix("-start")
            if kind not in COLLECTIVES:
                continue
            if kind == "collective-permute":
                size = it.bytes()
            else:
                ranks = self.group(it)
                size = it.bytes() * (ranks - 1) / ranks
                parts = self.slices(it) if kind == "all-reduce" else []
                if parts and len({str(part.shapes) for part in parts}) == 1 and \
                        len(it.shapes) == 1:
                    kind = "reduce-scatter"
                elif kind == "all-reduce":
                    size *= 2
                elif kind == "reduce-scatter":
                    size = it.bytes() * (ranks - 1)
            counts[kind] += 1
            total += size
        return int(total), dict(counts)

    def multiplications(self):
        """Operations of products and convolutions, two per multiplication."""
        total = 0
        for it in self.all.values():
            if it.opcode not in ("dot", "convolution"):
                continue
            left, right = (self.all[it.computation, name].shapes[0][1]
                           for name in it.operands)
            result = math.prod(it.shapes[0][1])
            if it.opcode == "dot":
                depth = math.prod(left[d] for d in it.list("lhs_contracting_dims"))
            else:
                labels = re.search(r"dim_labels=\w+_(\w+)->", it.rest)[1]
                depth = math.prod(right) // right[labels.index("o")]
                # Between the elements of a picture that is dilated stand zeros.
                if dilated := re.search(r"lhs_dilate=([\dx]+)", it.rest):
                    result //= math.prod(int(n) for n in dilated[1].split("x"))
            total += 2 * result * depth
        return total
