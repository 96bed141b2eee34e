from sanp.report.charts.paper_row import paper_row


def test_the_papers_row_is_the_nearest_in_cost() -> None:
    # Table 1 keeps 163/501 = 32.5 % of ResNet-18, table 3 keeps 333/501 = 66.5 %.
    near, far = paper_row("cifar10", "resnet18", "sanp", 0.35), paper_row("cifar10", "resnet18", "sanp", 0.6)
    assert near is not None and (near.table, near.error, round(near.pruned, 3)) == (1, 0.0564, 0.675)
    assert far is not None and (far.table, far.error, round(far.pruned, 3)) == (3, 0.0541, 0.335)
    assert paper_row("digits", "resnet18", "sanp", 0.35) is None
    assert paper_row("cifar100", "vgg19", "fbs", 0.35) is None
