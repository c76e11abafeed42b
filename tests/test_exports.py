"""The check of exported symbols finds what it is for."""

from tests.exports import check

PUBLIC = {"rabbet_open": "include/rabbet/a.h"}
PRIVATE = {"rabbet_inside": "src/base/a.h"}
NODES = {"rabbet_open": "RABBET_0", "rabbet_inside": "RABBET_PRIVATE_0.1.0"}


def errors(tmp_path, monkeypatch, names, listed):
    monkeypatch.setattr(check, "LISTS", tmp_path)
    monkeypatch.setattr(check, "declared", lambda folder, mark: (
        PUBLIC if mark == "RABBET_API" else PRIVATE))
    (tmp_path / "lib.txt").write_text(listed)
    return list(check.check({"lib": {name: NODES.get(name, "") for name in names}}))


def test_as_listed(tmp_path, monkeypatch):
    names = {"rabbet_open", "rabbet_inside"}
    assert errors(tmp_path, monkeypatch, names, "rabbet_open\n") == []


def test_new_gone_foreign_and_missing(tmp_path, monkeypatch):
    (found,) = errors(tmp_path, monkeypatch, {"rabbet_open"}, "")
    assert "rabbet_open is new" in found
    (found,) = errors(tmp_path, monkeypatch, {"rabbet_open"},
                      "rabbet_open\nrabbet_old\n")
    assert "rabbet_old is gone" in found
    (found,) = errors(tmp_path, monkeypatch, {"rabbet_open", "helper"},
                      "rabbet_open\n")
    assert "helper is exported but marked in no header" in found
    (found,) = errors(tmp_path, monkeypatch, set(), "")
    assert "rabbet_open is declared, and no library has it" in found


def test_version_nodes(tmp_path, monkeypatch):
    names = {"rabbet_open", "rabbet_inside"}
    monkeypatch.setitem(NODES, "rabbet_open", "RABBET_PRIVATE_0.1.0")
    (found,) = errors(tmp_path, monkeypatch, names, "rabbet_open\n")
    assert "rabbet_open has version 'RABBET_PRIVATE_0.1.0'" in found
    monkeypatch.setitem(NODES, "rabbet_open", "RABBET_0")
    monkeypatch.setitem(NODES, "rabbet_inside", "")
    (found,) = errors(tmp_path, monkeypatch, names, "rabbet_open\n")
    assert "rabbet_inside has version ''" in found


def test_update(tmp_path, monkeypatch):
    errors(tmp_path, monkeypatch, set(), "")
    list(check.check({"lib": NODES}, update=True))
    assert (tmp_path / "lib.txt").read_text() == "rabbet_open\n"


def test_declarations(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / "include").mkdir()
    (tmp_path / "include/a.h").write_text("""
#define RABBET_API \\
  __attribute__((visibility("default")))
RABBET_API RABBET_MUST_USE rabbet_status_t
rabbet_one(rabbet_two_t two);
// RABBET_API void rabbet_comment(void);
RABBET_API const char* rabbet_three(rabbet_status_t rabbet_four);
extern RABBET_API const int rabbet_five;
static inline int rabbet_six(void);
""")
    assert set(check.declared("include", "RABBET_API")) == {
        "rabbet_one", "rabbet_three", "rabbet_five"}
