"""The kept pictures themselves: small, and compared in a way that notices and says what changed."""

import pytest
import snapshots

from windtunnel.tui.theme import Theme

LINES = [(("one", "strong"), (" & two", "dim")), (("three", ""),)]


def test_a_changed_word_or_colour_is_noticed_and_said(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(snapshots, "FOLDER", tmp_path)
    monkeypatch.setattr(snapshots.tempfile, "gettempdir", lambda: str(tmp_path))
    first = snapshots.picture(LINES, 20)
    monkeypatch.delenv(snapshots.RENEW, raising=False)
    with pytest.raises(AssertionError, match="no such picture"):
        snapshots.same("x", first)
    monkeypatch.setenv(snapshots.RENEW, "write")
    snapshots.same("x", first)
    monkeypatch.delenv(snapshots.RENEW)
    snapshots.same("x", first)
    with pytest.raises(AssertionError, match=r"(?s)- one & two\n\+ one & four"):
        snapshots.same("x", snapshots.picture([(("one", "strong"), (" & four", "dim")), LINES[1]], 20))
    with pytest.raises(AssertionError, match="colours or shapes"):
        snapshots.same("x", snapshots.picture([LINES[0], (("three", "bad"),)], 20))
    with pytest.raises(AssertionError, match="colours or shapes"):
        snapshots.same("x", snapshots.picture(LINES, 20, marked=1))


def test_how_a_line_is_put_together_makes_no_difference() -> None:
    pieces = [(("o", "strong"), ("ne", "strong"), (" &", "dim"), (" two", "dim"))]
    assert snapshots.picture(pieces, 20) == snapshots.picture(LINES[:1], 20)
    assert snapshots.picture(LINES, 20, Theme(colour=False)) != snapshots.picture(LINES, 20)


def test_kept_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in snapshots.FOLDER.glob("*.svg")}
    assert {name: size for name, size in sizes.items() if size > 160_000} == {}
    assert sum(sizes.values()) < 4_000_000
