"""Scripts of runs that a completion gate judges."""

from peers.author import RAISES, Spec
from peers.script import (
    Ends,
    Refuse,
    Script,
    Stricter,
    call,
    calls,
    exhausted,
    plan,
    raises,
    text,
)

HI = call("echo", text="hi")
NO, YES = (False, "not yet"), (True, "")
FAILED_ONCE = "completion.verify failed 1×: not yet"  # noqa: RUF001 - a times sign
OPEN_B = "1 item(s) still open: b"
REJECTED = Ends("error", by="verifier_error: ")


def _spec(*verdicts: object, attempts: object = 3, max_turns: int | None = None) -> Spec:
    return Spec(tools=("echo",), verify=verdicts, max_attempts=attempts, max_turns=max_turns)


def _measured(**measure: int) -> Spec:
    return Spec(tools=("echo", "noon"), verify=measure, max_attempts=2, rails=({"noon": "no time"},))


def _todos(*rails: dict[str, object], attempts: int = 3) -> Spec:
    return Spec(tools=("todowrite", "echo"), verify="todos", max_attempts=attempts, rails=rails)


GATES = (
    Script("passed at the first attempt", _spec(YES), (text("1"),)),
    Script("passed with a reason", _spec((True, "well done")), (text("1"),)),
    Script("passed at the second attempt", _spec(NO, YES), (text("1"), text("2")), Ends(attempts=2)),
    Script("passed at the third attempt", _spec(NO, (False, "nor now"), YES),
           (text("1"), text("2"), text("3")), Ends(attempts=3)),
    Script("passed after tools", _spec(NO, YES),
           (calls(HI), text("1"), calls(HI), calls(HI), text("2")), Ends(attempts=2)),
    Script("exhausted", _spec(NO), (text("1"), text("2"), text("3")), exhausted("not yet", 3)),
    Script("exhausted, by the last reason", _spec(NO, (False, "nor now"), attempts=2),
           (text("1"), text("2")), exhausted("nor now", 2)),
    Script("exhausted at once", _spec(NO, attempts=1), (text("1"),), exhausted("not yet", 1)),
    Script("no reason", _spec((False, ""), YES), (text("1"), text("2")), Ends(attempts=2)),
    Script("exhausted without a reason", _spec((False, ""), attempts=2), (text("1"), text("2")),
           exhausted("unspecified", 2)),
    Script("a reason of several lines", _spec((False, "a.\n b: Ü. "), YES), (text("1"), text("2")),
           Ends(attempts=2)),
    Script("a blank reason", _spec((False, " "), YES), (text("1"), text("2")), Ends(attempts=2),
           why=Stricter.NOTHING_SAID, where="asked"),
    Script("an empty answer is rejected", _spec(NO, YES), (text(""), text("2")), Ends(attempts=2),
           why=Stricter.NOTHING_SAID, where="asked"),
    Script("an async verifier", Spec(verify=(NO, YES), verify_async=True), (text("1"), text("2")),
           Ends(attempts=2)),
    Script("the model of the call, in every attempt", Spec(verify=(NO, YES), call_model="just-now"),
           (text("1"), text("2")), Ends(attempts=2)),
    Script("the soul is told once", Spec(verify=(NO, YES), soul="Be brief."), (text("1"), text("2")),
           Ends(attempts=2)),
    Script("calls of all attempts are judged", _measured(calls=2),
           (calls(HI), text("1"), calls(HI), text("2")), Ends(attempts=2)),
    Script("a denied call counts once", _measured(calls=2),
           (calls(call("noon")), text("1"), calls(HI), text("2")), Ends(attempts=2)),
    Script("usage of one attempt is judged", _measured(tokens=20), (calls(HI), text("1"))),
    Script("usage of all attempts is judged", _measured(tokens=20), (text("1"), text("2")),
           Ends(attempts=2), exhausted("seen nothing and 10 tokens", 2),
           Stricter.LOST_USAGE, "status loop"),
    Script("refused before the verdict", _spec(NO, YES), (text("1"), Refuse(400)),
           Ends("error", 2, "provider_error: "), raises("ProviderError")),
    # --- todos
    Script("no plan", _todos(), (text("1"),)),
    Script("a plan that is done", _todos(), (calls(plan(a=True)), text("1"))),
    Script("an empty plan", _todos(), (calls(plan()), text("1"))),
    Script("a plan is carried out", _todos(),
           (calls(plan(a=True, b=False)), text("1"), calls(plan(a=True, b=True)), text("2")),
           Ends(attempts=2)),
    Script("a plan stays open", _todos(attempts=2),
           (calls(plan(a=True, b=False)), text("1"), text("2")),
           exhausted(OPEN_B, 2)),
    Script("all that is open is named", _todos(attempts=1), (calls(plan(a=False, b=False)), text("1")),
           exhausted("2 item(s) still open: a; b", 1)),
    Script("a new plan replaces the old", _todos(),
           (calls(plan(a=False)), calls(plan(b=True)), text("1"))),
    Script("a new plan, open", _todos(attempts=1),
           (calls(plan(a=True)), calls(plan(b=False)), text("1")),
           exhausted(OPEN_B, 1)),
    Script("two plans in a turn", _todos(), (calls(plan(a=False), plan(a=True)), text("1"))),
    Script("an emptied plan", _todos(attempts=1), (calls(plan(b=False)), calls(plan()), text("1")),
           exhausted(OPEN_B, 1), Ends(), Stricter.TODO_EMPTIED, "status loop"),
    Script("a plan whose last word was denied", _todos({"denied": "not this"}, attempts=1),
           (calls(plan(b=False)), calls(plan(denied=True)), text("1")),
           exhausted(OPEN_B, 1), Ends(), Stricter.TODO_DENIED, "status loop"),
    Script("a plan whose last word failed", _todos(attempts=1),
           (calls(plan(b=False)), calls(call("todowrite", todos=["c"])), text("1")),
           exhausted(OPEN_B, 1), Ends(), Stricter.TODO_FAILED, "status loop"),
    Script("completed by a text", _todos(attempts=1),
           (calls(plan(b=False)), calls(plan(b="false")), text("1")),
           exhausted(OPEN_B, 1), Ends(), Stricter.TODO_TEXT_FOR_TRUE, "status loop asked calls"),
    Script("a plan that failed, and no other", _todos(attempts=1),
           (calls(call("todowrite", todos=[{"id": "1", "text": "b"}])), text("1")),
           exhausted("the list was never written", 1), exhausted(OPEN_B, 1), Stricter.TODO_FAILED,
           "status loop asked calls"),
    Script("a plan without items failed", _todos(attempts=1),
           (calls(plan(b=False)), calls(call("todowrite")), text("1")),
           exhausted(OPEN_B, 1), Ends(), Stricter.TODO_FAILED, "status loop asked calls"),
    # --- gate and cap
    Script("cap before any verdict", _spec(YES, max_turns=1), (calls(HI),),
           Ends("incomplete", by="iteration_cap"), Ends("incomplete", by="run reported incomplete"),
           Stricter.NAME_OF_CAP, "stopped_by"),
    Script("cap after a verdict", _spec(NO, YES, max_turns=2), (text("1"), calls(HI), text("2")),
           Ends("incomplete", 2, f"iteration_cap; {FAILED_ONCE}", 2), Ends(attempts=2),
           Stricter.CAP_PER_RUN, "status turns asked loop loop_turns"),
    # --- what is no gate
    Script("no attempts", _spec(YES, attempts=0), (), raises("InvalidInput"), raises("ValueError")),
    Script("half a number of attempts", _spec(YES, attempts=2.0), (),
           raises("InvalidInput"), raises("ValueError")),
    Script("attempts as a text", _spec(YES, attempts="3"), (),
           raises("InvalidInput"), raises("ValueError")),
    Script("True attempts", _spec(YES, attempts=True), (text("1"),),
           raises("InvalidInput", asked=0), Ends(), Stricter.ATTEMPTS_NO_NUMBER, "status asked"),
    Script("a verifier that raises", _spec(RAISES), (text("1"),),
           REJECTED, raises("ValueError"), Stricter.RAISING_VERIFIER),
    Script("a verifier that raises later", _spec(NO, RAISES), (text("1"), text("2")),
           Ends("error", 2, "verifier_error: "), raises("ValueError"), Stricter.RAISING_VERIFIER),
    Script("a bare True", _spec(True), (text("1"),),
           REJECTED, raises("AttributeError"), Stricter.NO_VERDICT),
    Script("a bare False", _spec(False), (text("1"),),
           REJECTED, raises("AttributeError"), Stricter.NO_VERDICT),
    Script("no verdict", _spec(None), (text("1"),),
           REJECTED, raises("AttributeError"), Stricter.NO_VERDICT),
    Script("a text for a verdict", _spec("fine"), (text("1"),),
           REJECTED, raises("AttributeError"), Stricter.NO_VERDICT),
)  # fmt: skip
