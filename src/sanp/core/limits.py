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
MOST_INPUTS = 100
"""inputs of a network in a header"""
MOST_DIMENSIONS = 16
"""dimensions of an input in a header"""
MOST_SKIPPED = 10_000
"""names or patterns of modules that stay dense in a header"""
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
LARGEST_PICTURE_FILE = 256 * 2**20
"""bytes of an image file"""
MOST_PICTURE_CHUNKS = 65_536
"""chunks of a PNG file"""
MOST_PICTURE_PARTS = 1000
"""chunks of a PNG file that hold no pixels, segments of a JPEG file before its pixels"""
MOST_SCANS = 200
"""passes of a progressive JPEG file over its pixels; encoders make about ten"""
LARGEST_EXIF = 65_536
"""bytes of a picture's EXIF block: what a segment of a JPEG file holds"""
LARGEST_RECIPE = 65_536
"""bytes of a recipe"""
MOST_DOTS = 500
"""in a line of a recipe: a key of many dotted parts takes time and memory that grow with the square of their number"""
LARGEST_CHANNELS = 16
"""channels of an image"""
LONGEST_LABEL = 1000
"""letters in the name of a class, layer or stage"""
LARGEST_INPUT = 2**28
"""numbers in an input that a user describes by its shape"""
LONGEST_ERROR = 4000
"""letters of an error that the command line prints"""
LARGEST_COUNT = 1e15
"""FLOPs or steps in a report; a larger number is damage"""
LARGEST_NUMBER = 1e30
"""largest size of a setting that is a number; far above it torch refuses to compute with single precision"""
LARGEST_WHOLE_NUMBER = 2**63 - 1
"""largest value of a setting that is a whole number"""
