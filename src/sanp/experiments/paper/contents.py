"""What can be made again: the paper's tables and figures by name. No torch here: a help page lists them."""

TABLES = {
    "table1": "Table 1: CIFAR-10",
    "table2": "Table 2: CIFAR-100",
    "table3": "Table 3: the ablations, a third of ResNet-18 pruned, CIFAR-10",
    "methods": "Every method on M-CifarNet, CIFAR-10",
}
"""folder of recipes, and name of its results file, to the title of the table"""

PRUNED = ("table3/resnet18-sanp", "table1/resnet18-sanp", "table1/vgg19-sanp", "table1/m_cifarnet-sanp")
FIGURES: dict[str, tuple[str, ...]] = {
    "fig1": ("table1/vgg19-ns", "table2/vgg19-ns", "methods/m_cifarnet-ns"),
    "fig3": PRUNED,
    "fig4": PRUNED,
}
"""the rows that a figure can be made of; the first one is that of the paper"""

DRAWN = (*FIGURES, "trade")
"""every figure; that of error against FLOPs is made of the tables' lines"""
