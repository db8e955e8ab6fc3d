"""Scripts of runs whose tool calls are judged."""

from peers.author import RAISES, Spec
from peers.script import Script, Stricter, call, calls, raises, text

HI, TWELVE = call("echo", text="hi"), call("noon")
ONE = (calls(HI), text("so"))


def _spec(*rails: dict[str, object]) -> Spec:
    return Spec(tools=("echo", "noon", "fail"), rails=rails)


GUARDRAILS = (
    Script("none is asked without a call", _spec({"*": "no"}), (text("hello"),)),
    Script("permitted by None", _spec({"*": None}), ONE),
    Script("permitted by nothing said", _spec({"*": ""}), ONE),
    Script("permitted by allow", _spec({"*": "allow"}), ONE),
    Script("Allow is a reason", _spec({"*": "Allow"}), ONE),
    Script("allow and more is a reason", _spec({"*": "allow "}), ONE),
    Script("a blank is a reason", _spec({"*": " "}), ONE),
    Script("all permit", _spec({"*": None}, {"*": "allow"}, {"*": ""}), ONE),
    Script("denied", _spec({"echo": "no echo here"}), ONE),
    Script("denied in many alphabets", _spec({"echo": "nicht für 正午 🕛"}), ONE),
    Script("the first denial wins", _spec({"*": None}, {"*": "first"}, {"*": "second"}), ONE),
    Script("after a denial none is asked", _spec({"*": "first"}, {"*": RAISES}), ONE),
    Script("denied by its arguments", _spec({"secret": "no secrets"}),
           (calls(HI, call("echo", text="secret")), text("so"))),
    Script("one of a turn is denied", _spec({"noon": "no time"}), (calls(HI, TWELVE, HI), text("so"))),
    Script("all of a turn are denied", _spec({"*": "no"}), (calls(HI, TWELVE), text("so"))),
    Script("denied, then another way", _spec({"noon": "no time"}),
           (calls(TWELVE), calls(HI), text("so"))),
    Script("denied, then given up", _spec({"*": "no"}), (calls(HI), calls(HI), text("I give up"))),
    Script("an unknown tool is denied, too", _spec({"*": "no"}), (calls(call("rm")), text("so"))),
    Script("a tool that would raise is denied", _spec({"fail": "no"}),
           (calls(call("fail", why="full")), text("so"))),
    Script("a plan is denied", Spec(tools=("todowrite",), rails=({"*": "no plans"},)),
           (calls(call("todowrite", todos=[])), text("so"))),
    Script("a guardrail that raises", _spec({"noon": RAISES}), (calls(HI, TWELVE), text("so")),
           why=Stricter.RAISING_GUARDRAIL, where="asked status", peer=raises("ValueError", asked=1)),
    Script("a guardrail that answers nonsense", _spec({"noon": True}), (calls(HI, TWELVE), text("so")),
           why=Stricter.RAISING_GUARDRAIL, where="asked status", peer=raises("TypeError", asked=1)),
)  # fmt: skip
