"""docs/reference.md is what the records say now, and leaves none of their fields out."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(generator: ModuleType) -> None:
    written = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert written == generator.page(), "run: python docs/generate_reference.py"


def test_every_field_of_every_record_has_a_row(generator: ModuleType) -> None:
    sections = re.split(r"^### (\w+)$", generator.page(), flags=re.MULTILINE)
    rows = {
        name: re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
        for name, text in zip(sections[1::2], sections[2::2], strict=True)
    }
    records = generator.records()
    assert set(records) <= set(rows)
    for name, record in records.items():
        assert rows[name] == list(record.model_fields), name


def test_every_link_leads_to_a_section(generator: ModuleType) -> None:
    page = generator.page()
    headings = {name.lower() for name in re.findall(r"^### (\w+)$", page, re.MULTILINE)}
    links = set(re.findall(r"\]\(#([^)]*)\)", page))
    assert links
    assert links <= headings
