"""Which files are migrations, and which histories of a database fit them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hango.db.migration_files import AppliedMigration, Migration, check_history, read_migrations
from hango.db.queries import sql_folder
from hango.errors import MigrationError


def folder_of(path: Path, files: dict[str, str]) -> Path:
    """Write *files* below *path*."""
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def applied(*migrations: Migration) -> dict[int, AppliedMigration]:
    """Make the history of a database where *migrations* were applied."""
    now = datetime(2026, 1, 2, tzinfo=UTC)
    return {m.number: AppliedMigration(m.number, m.name, m.sha256, now) for m in migrations}


ONE = Migration(1, "0001_one", "select 1;")
TWO = Migration(2, "0002_two", "select 2;")
THREE = Migration(3, "0003_three", "select 3;")


def test_the_shipped_files_are_found_and_fit_together() -> None:
    """Hango brings its own schema, and it is well-formed."""
    migrations = read_migrations(sql_folder().joinpath("migrations"))
    assert migrations[0].name == "0001_initial"
    assert sql_folder().joinpath("queries").is_dir()


def test_files_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Whatever order the folder lists them in; hidden files of editors are no migrations."""
    files = {f"{n:04}_step_{n}.sql": f"select {n};" for n in range(12, 0, -1)}
    migrations = read_migrations(folder_of(tmp_path, {**files, ".0001_step_1.sql.swp": ""}))
    assert [m.number for m in migrations] == list(range(1, 13))
    assert migrations[9] == Migration(10, "0010_step_10", "select 10;")


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "1_short.sql",
        "00001_long.sql",
        "0001.sql",
        "0001_.sql",
        "0001_Upper.sql",
        "0001-dash.sql",
        "0001_a.sql.bak",
        "0001_a.SQL",
        "0001_ü.sql",
        "0001_a b.sql",
    ],
)
def test_a_file_with_another_kind_of_name_is_refused(tmp_path: Path, name: str) -> None:
    """A migration that is misspelled is never left out in silence."""
    with pytest.raises(MigrationError, match="is named like"):
        read_migrations(folder_of(tmp_path, {name: "select 1;"}))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["0002_b.sql"], "0002_b.sql: there is no migration 0001"),
        (["0001_a.sql", "0003_c.sql"], "0003_c.sql: there is no migration 0002"),
        (["0001_a.sql", "0001_b.sql"], "0001_b.sql: number 0001 is used twice"),
        (["0000_z.sql", "0001_a.sql"], "0000_z.sql: number 0000 is used twice"),
    ],
)
def test_a_gap_or_a_number_used_twice_is_refused(tmp_path: Path, names: list[str], reason: str) -> None:
    """Two branches that were merged do not decide the order by chance."""
    with pytest.raises(MigrationError, match=reason):
        read_migrations(folder_of(tmp_path, dict.fromkeys(names, "select 1;")))


@pytest.mark.parametrize("text", ["", " \n\t\n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    """Nothing is recorded as applied that did nothing by mistake."""
    with pytest.raises(MigrationError, match=r"0001_a\.sql: is empty"):
        read_migrations(folder_of(tmp_path, {"0001_a.sql": text}))


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / "0001_a.sql").write_bytes(b"select '\xff';")
    with pytest.raises(MigrationError, match=r"0001_a\.sql: cannot be read"):
        read_migrations(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "begin;\nselect 1;",
        "select 1;\n  COMMIT ;",
        "start  transaction;",
        "select 1;\nrollback;",
        "select 1; commit;",
    ],
)
def test_a_file_may_not_begin_or_end_transactions(tmp_path: Path, text: str) -> None:
    """It would tear apart the change and its record."""
    with pytest.raises(MigrationError, match="transaction"):
        read_migrations(folder_of(tmp_path, {"0001_a.sql": text}))


def test_words_of_transactions_may_stand_elsewhere(tmp_path: Path) -> None:
    """In comments and in names they mean nothing."""
    lines = (
        "-- x; commit;",
        "create table t (commit_id int, x text default 'begin;');",
        "select case when true then 1",
        "end;",
    )
    files = {"0001_a.sql": "\n".join(lines)}
    assert len(read_migrations(folder_of(tmp_path, files))) == 1


def test_line_ends_do_not_change_the_checksum(tmp_path: Path) -> None:
    """A checkout on another system is the same file."""
    (tmp_path / "0001_a.sql").write_bytes(b"select 1;\r\nselect 2;\r\n")
    [windows] = read_migrations(tmp_path)
    (tmp_path / "0001_a.sql").write_bytes(b"select 1;\nselect 2;\n")
    [unix] = read_migrations(tmp_path)
    assert windows.sha256 == unix.sha256


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_any_beginning_of_the_files_is_a_history_that_fits(count: int) -> None:
    """What is missing at the end is to be applied."""
    check_history([ONE, TWO, THREE], applied(*[ONE, TWO, THREE][:count]))


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([ONE, TWO, THREE], r"0003_three\.sql.*newer version.*Upgrade hango"),
        ([ONE, Migration(2, "0002_two", "select 22;")], r"0002_two\.sql: was edited"),
        ([Migration(1, "0001_uno", "select 1;"), TWO], r"0001_one\.sql.*0001_uno"),
        ([TWO], r"0001_one\.sql: was left out"),
    ],
)
def test_any_other_history_is_refused(history: list[Migration], reason: str) -> None:
    """Newer, edited, renamed, left out: the error names the file and what to do."""
    with pytest.raises(MigrationError, match=reason):
        check_history([ONE, TWO], applied(*history))
