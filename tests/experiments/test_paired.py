import torch
from scripts.paired import paired


def test_only_images_that_one_alone_has_right_count() -> None:
    first = torch.tensor([1, 1, 1, 1, 1, 0, 0, 1], dtype=torch.bool)
    second = torch.tensor([0, 0, 0, 0, 0, 1, 0, 1], dtype=torch.bool)
    found = paired(first, second)
    assert found == {"images": 8, "first_alone": 5, "second_alone": 1, "deviations": 1.63}  # 4 / sqrt(6)


def test_networks_that_answer_alike_do_not_differ() -> None:
    answers = torch.tensor([1, 0, 1], dtype=torch.bool)
    assert paired(answers, answers)["deviations"] == 0
