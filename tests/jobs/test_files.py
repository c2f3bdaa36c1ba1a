import pytest

from harness.files import write_whole


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "deep" / "file"
    for content in (b"old", b"new"):
        write_whole(path, content)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_what_cannot_be_written_leaves_no_draft(tmp_path):
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(path, b"new")
    assert list(tmp_path.iterdir()) == [path]
