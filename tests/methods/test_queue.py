"""The queue against the published ring buffer's contents, and against a plain list."""

import torch

from newkinds.methods.queue import Queue


def test_contents_are_those_of_the_published_ring():
    queue = Queue(7, 2)
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7)]
    after = [
        [(0, 1), (2, 3), (4, 5), (6, 7)],
        [(16, 17), (2, 3), (4, 5), (6, 7), (10, 11), (12, 13), (14, 15)],
        [(16, 17), (20, 21), (22, 23), (24, 25), (26, 27), (12, 13), (14, 15)],
    ]
    for tens, expected in enumerate(after):
        queue.push(torch.tensor(pairs, dtype=torch.float32) + 10 * tens)
        assert [tuple(map(int, row)) for row in queue.rows] == expected


def test_it_holds_the_latest_rows_and_their_labels():
    queue, everything = Queue(5, 1), []
    for count in (1, 0, 3, 2, 12, 4, 5):
        new = torch.arange(len(everything), len(everything) + count)
        queue.push(new[:, None].float(), new * 10)
        everything += new.tolist()
        assert sorted(queue.rows.flatten().int().tolist()) == everything[-5:]
        assert torch.equal(queue.labels, queue.rows.flatten().long() * 10)
        assert len(queue) == min(len(everything), 5)


def test_rows_without_labels_have_none():
    queue = Queue(3, 1)
    queue.push(torch.ones(1, 1), torch.tensor([4]))
    queue.push(torch.ones(3, 1))
    assert queue.labels.tolist() == [-1, -1, -1]


def test_no_more_rows_than_training_images(capsys):
    queue = Queue(2048, 3)
    queue.limit(2048)
    assert not capsys.readouterr().err
    queue.limit(32)
    assert queue.ring.shape == (32, 3)
    assert "a queue of 2,048 rows is larger than the 32 training images" in " ".join(capsys.readouterr().err.split())
    queue.push(torch.ones(3, 3))
    loaded = Queue(2048, 3)  # as a finished run is loaded, whose number of images is not known
    loaded.load_state_dict(queue.state_dict())
    assert loaded.rows.shape == (3, 3)
