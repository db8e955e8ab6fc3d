"""The public API: what users may import, and that documents and examples need nothing else."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hango
import hango.exports

ROOT = Path(__file__).parents[2]
PUBLIC = ("hango", "hango.testing", "hango.testing.plugin")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXTS = [
    *(ROOT / "docs").rglob("*.py"),
    *(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions"),
    ROOT / "README.md",
]


def test_what_users_may_import_is_pinned() -> None:
    """Removing a name breaks users; adding one is a promise."""
    assert hango.__all__ == [
        "Agent",
        "AnthropicProvider",
        "BeforeToolEvent",
        "Block",
        "BlockStart",
        "BlockStop",
        "Completion",
        "ConfigError",
        "ContextExceeded",
        "Effects",
        "Guardrail",
        "HangoError",
        "InputDelta",
        "InvalidInput",
        "Limits",
        "Loop",
        "LoopBusy",
        "LoopOutcome",
        "Message",
        "ModelOptions",
        "OpaqueBlock",
        "Outcome",
        "Plugins",
        "PromptMessage",
        "Provider",
        "ProviderError",
        "ProviderEvent",
        "ProviderRequest",
        "ProviderStreamBroken",
        "RedactedThinkingBlock",
        "RegistrationError",
        "Registry",
        "Result",
        "RunOpts",
        "RunResult",
        "RunState",
        "Scope",
        "SignatureDelta",
        "Stop",
        "StopReason",
        "TextBlock",
        "TextDelta",
        "ThinkingBlock",
        "ThinkingDelta",
        "Tool",
        "ToolCall",
        "ToolContext",
        "ToolDefinition",
        "ToolResult",
        "ToolResultBlock",
        "ToolSet",
        "ToolUseBlock",
        "Toolkit",
        "UnsupportedStop",
        "Usage",
        "UsageUpdate",
        "Verdict",
        "Verifier",
        "all_todos_done",
        "loop_unsupported",
        "openai_provider",
        "tool",
    ]
    for module in map(importlib.import_module, PUBLIC):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
    exported = {name for name in vars(hango.exports) if not name.startswith("_")}
    assert exported == set(hango.__all__)  # what type checkers see, and what is loaded when used


def _imports(code: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of what *code* imports from hango."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "hango":
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from ((name, "") for name in names if name.partition(".")[0] == "hango")


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_need_only_what_is_public(path: Path) -> None:
    """A reader who copies an example depends on nothing that may change."""
    text = path.read_text("utf-8")
    for code in [text] if path.suffix == ".py" else BLOCK.findall(text):
        for module, name in _imports(code):
            assert module in PUBLIC
            assert not name or name in importlib.import_module(module).__all__


def test_former_names_of_an_agents_fields_are_the_same() -> None:
    """`soul` and `does` are aliases, whichever is given."""
    old, new = hango.Agent("a", does="d", soul="s"), hango.Agent("a", description="d", instructions="s")
    for agent in (old, new):
        assert (agent.does, agent.description) == ("d", "d")
        assert (agent.soul, agent.instructions) == ("s", "s")
        agent.check()
    with pytest.raises(hango.InvalidInput, match="not both"):
        hango.Agent("a", soul="s", instructions="t").check()


def test_effects_may_be_declared_by_name() -> None:
    """It saves an import in every tool; this file is type-checked, so that holds there as well."""

    @hango.tool(effects="read_only")
    def count(text: str) -> int:
        """Count words."""
        return len(text.split())

    made = hango.Tool("t", "", {"type": "object"}, "unsafe", count.function)
    assert (count.effects, made.effects) == (hango.Effects.READ_ONLY, hango.Effects.UNSAFE)
