"""The sizes that a file from outside may ask for; each is checked before anything of that size is made.

With them every file is read or refused within 20 seconds of processor time and 2 GB (docs/reliability.md).
"""

LARGEST_TEXT = 32 * 2**20
"""bytes of a JSON or TOML file; empty lists take 20 times their text in memory"""
LARGEST_HEADER = 8 * 2**20
"""bytes of a safetensors header; enough for about 80,000 tensors"""
LARGEST_TENSOR_FILE = 4 * 2**30
"""bytes of a safetensors file"""
LARGEST_STUDY = 512 * 2**20
"""bytes of a study, which is read at once"""
LARGEST_EXAMPLE = 8_000_000
"""numbers in an example input"""
LARGEST_FORWARD_FLOPS = 50_000_000_000
"""multiply-adds of the forward of an example input; loading runs a few such forwards"""
LARGEST_FORWARD_NUMBERS = 150_000_000
"""numbers that all operators of the forward of an example input make, which a trace keeps"""
LARGEST_SIDE = 4096
"""pixels of the side of a data set's images"""
LARGEST_DIGITS_SIDE = 256
"""pixels of the side of the digits, which are all in memory"""
MOST_CLASSES = 100_000
MOST_LAYERS = 1000
"""convolutions in a report or study; a page has a chart of each"""
MOST_STAGES = 100
"""stages in metrics.jsonl; a page has a mark for each"""
MOST_EPOCHS = 10_000
"""lines of metrics.jsonl"""
MOST_PIXELS = 64 * 2**20
"""pixels of an image file: a small file can unfold to any size"""
LARGEST_PICTURE_SIDE = 2**16
"""pixels of the longer side of an image file; Pillow keeps some memory for every row"""
LARGEST_COUNT = 1e15
"""FLOPs or steps in a report; a larger number is damage"""
LARGEST_NUMBER = 1e30
"""largest size of a setting that is a number; far above it torch refuses to compute with single precision"""
LARGEST_WHOLE_NUMBER = 2**63 - 1
"""largest value of a setting that is a whole number"""
