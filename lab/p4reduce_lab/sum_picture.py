"""A recorded sum over one switch as an SVG that moves by SMIL, so that a code host shows it as it is."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

SECONDS, SECONDS_WITH_ANSWERS, SECONDS_BEFORE, SECONDS_AFTER = 0.85, 1.5, 3.0, 2.5
"""How long a frame is shown, and what is before the first and after the last one."""
_WIDTH, _TOP, _SWITCH_AT, _ROW, _GAP = 920, 12, 336, 66, 4
_RANK_WIDTH, _RANK_HEIGHT = 196, 60
_STYLE: Final = """
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1b1f27}.small{font-size:9.5px}.dim{fill:#565e6c}
.sums{font:9px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre}.bold{font-weight:700}
.says{font-size:14px}.back{fill:#fbfbfd}.card{fill:#fff;stroke:#c3c8d2}.row{fill:#eef0f5}.done{fill:#dff2eb}
.now{fill:none;stroke:#e0ac00;stroke-width:2}.line{stroke:#c3c8d2;stroke-width:2}.dot{fill:#9aa2b0}
.got,.RESULT{fill:#1b1f27}.lost{fill:#b3400b}.onr0,.onRESULT,.onlost{fill:#fff}.onr1,.onr2,.onr3{fill:#10131a}
.r0{fill:#0072b2}.r1{fill:#e69f00}.r2{fill:#009e73}.r3{fill:#cc79a7}.own{fill-opacity:.25}
@media(prefers-color-scheme:dark){text{fill:#e9ecf2}.dim{fill:#aab2c0}.back{fill:#14171d}.card{fill:#1d222b;stroke:#454d5b}
.row{fill:#262c37}.done{fill:#17352c}.line{stroke:#454d5b}.got,.RESULT{fill:#e9ecf2}.onRESULT{fill:#14171d}}
@media(prefers-reduced-motion:reduce){.moves{display:none}}
"""
"""The colors are those of Okabe and Ito."""


class _Clock:
    """When each frame of the recording leaves, is in the slot, and has been answered, in seconds of the picture."""

    def __init__(self, steps: Sequence[Mapping[str, Any]]) -> None:
        self.begins, self.arrives, self.ends = [], [], []
        now = SECONDS_BEFORE
        for step in steps:
            seconds, part = (SECONDS_WITH_ANSWERS, 0.4) if step["answers"] else (SECONDS, 0.75)
            self.begins.append(now)
            self.arrives.append(now + part * seconds)
            now += seconds
            self.ends.append(now)
        self.total = now + SECONDS_AFTER

    def during(self, begin: float, end: float, drawn: str) -> str:
        """Show what is drawn from one time to another, in every repetition."""
        times, values = ([0.0, begin], ["0", "1"]) if begin > 0 else ([0.0], ["1"])
        if end < self.total:
            times, values = [*times, end], [*values, "0"]
        keys = ";".join(f"{at / self.total:.4f}" for at in times)
        return (
            f'<g opacity="{values[0]}">{drawn}<animate attributeName="opacity" calcMode="discrete" '
            f'values="{";".join(values)}" keyTimes="{keys}" dur="{self.total:.2f}s" repeatCount="indefinite"/></g>'
        )

    def moving(self, begin: float, end: float, path: str, drawn: str, share: float) -> str:
        """Move what is drawn along a share of a path, and show it only then."""
        times = ";".join(f"{at / self.total:.4f}" for at in (0, begin, end, self.total))
        return self.during(
            begin,
            end,
            f'<g>{drawn}<animateMotion path="{path}" keyPoints="0;0;{share:g};{share:g}" keyTimes="{times}" '
            f'calcMode="linear" dur="{self.total:.2f}s" repeatCount="indefinite"/></g>',
        )


def picture(document: Mapping[str, Any]) -> str:
    """Return the SVG of what `p4reduce switch trace --html` recorded over one switch, without frames it dropped."""
    document = {**document, "steps": [step for step in document["steps"] if step["state"]]}
    steps, ranks, clock = document["steps"], document["ranks"], _Clock(document["steps"])
    slots = sorted({step["slot"] for step in steps})
    tops = {
        (slot, parity): _TOP + 26 + (2 * number + parity) * (_ROW + _GAP) + 20 * number
        for number, slot in enumerate(slots)
        for parity in (0, 1)
    }
    height = max(tops.values()) + _ROW + 8
    middles = [_TOP + (height - _TOP) / ranks * (rank + 0.5) for rank in range(ranks)]
    drawn = [_box("card", _SWITCH_AT, _TOP, _WIDTH - _SWITCH_AT - 8, height - _TOP, 10)]
    for slot in slots:
        title = f"slot {slot}" if slot != slots[0] else f"switch, slot {slot}"
        drawn.append(_text("bold", _SWITCH_AT + 10, tops[slot, 0] - 7, title))
        for parity, rounds in ((0, "even rounds"), (1, "odd rounds")):
            drawn.append(_box("row", _SWITCH_AT + 5, tops[slot, parity], _WIDTH - _SWITCH_AT - 18, _ROW, 6))
            drawn.append(
                clock.during(0, clock.begins[0], _text("dim", _SWITCH_AT + 13, tops[slot, parity] + 17, rounds))
            )
    for rank, middle in enumerate(middles):
        drawn.append(f'<path class="line" d="M{8 + _RANK_WIDTH} {middle:g}H{_SWITCH_AT}"/>')
        drawn.append(_rank(document, clock, rank, middle))
    before = "A gradient of each rank: bars are blocks, dots are blocks of zeros, which are never sent."
    drawn.append(clock.during(0, clock.begins[0], _text("says", 12, height + 26, before)))
    moving = []
    for number, step in enumerate(steps):
        place = step["slot"], step["round"] & 1
        later = range(number + 1, len(steps))
        until = next((clock.arrives[at] for at in later if (steps[at]["slot"], steps[at]["round"] & 1) == place), None)
        drawn.append(clock.during(clock.arrives[number], until or clock.total, _version(document, step, tops[place])))
        now = _box("now", _SWITCH_AT + 5, tops[place], _WIDTH - _SWITCH_AT - 18, _ROW, 6)
        drawn.append(clock.during(clock.arrives[number], clock.ends[number], now))
        slot_at = f"{_SWITCH_AT + 30} {tops[place] + 32}"
        way = f"M{8 + _RANK_WIDTH} {middles[step['child']]:g}H{_SWITCH_AT}L{slot_at}"
        token = _token(_numbers(step["blocks"]) or "keys", f"r{step['child'] % 4}")
        moving.append(clock.moving(clock.begins[number], clock.arrives[number], way, token, 1))
        sums = _numbers(step["state"]["sums"])
        for answer in step["answers"]:
            lost, to = answer["lost"], middles[answer["to"]]
            way = f"M{slot_at}L{_SWITCH_AT} {to:g}H{8 + _RANK_WIDTH}"
            token = _token(f"Σ {sums}" if sums else "keys", answer["type"])
            end = clock.ends[number] - (0.5 if lost else 0)
            moving.append(clock.moving(clock.arrives[number] + 0.15, end, way, token, 0.6 if lost else 1))
            if lost:
                at = f"translate({(_RANK_WIDTH + _SWITCH_AT) / 2:g} {to:g})"
                token = f'<g transform="{at}">{_token("✕ lost or late", "lost")}</g>'
                moving.append(clock.during(end, end + 1.3, token))
        lines = enumerate(textwrap.wrap(step["says"], 120))
        says = "".join(_text("says", 12, height + 26 + 19 * line, escape(text)) for line, text in lines)
        following = clock.begins[number + 1] if number + 1 < len(steps) else clock.total
        drawn.append(clock.during(clock.begins[number], following, says))
    about = f"{ranks} ranks sum a gradient in a switch: {len(steps)} recorded frames in slow motion"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height + 56}" role="img" '
        f'aria-label="{about}"><title>{about}</title><style>{_STYLE}</style>'
        f"{_box('back', 0, 0, _WIDTH, height + 56, 12)}{''.join(drawn)}{''.join(moving)}</svg>\n"
    )


def _box(kind: str, x: float, y: float, width: float, height: float, radius: float = 0) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:.4g}" height="{height:g}" rx="{radius:g}"/>'


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:g}" text-anchor="{anchor}">{text}</text>'


def _token(text: str, kind: str) -> str:
    width = 14 + 6.6 * len(text)
    return f'<g class="moves">{_box(kind, -width / 2, -10, width, 20, 9)}{_text(f"on{kind}", 0, 4, text, "middle")}</g>'


def _numbers(blocks: Mapping[str, Mapping[str, Any]]) -> str:
    return " · ".join(str(block["block"]) for block in blocks.values() if block["block"] is not None)


def _rank(document: Mapping[str, Any], clock: _Clock, rank: int, middle: float) -> str:
    """Draw a rank with its blocks: zeros are dots, others are filled once they are sent; below, the sums it has."""
    sent: dict[int, float] = {}
    got: dict[int, float] = {}
    for number, step in enumerate(document["steps"]):
        if step["child"] == rank:
            for block in step["blocks"].values():
                sent.setdefault(block["block"], clock.begins[number])
        if any(answer["to"] == rank and not answer["lost"] for answer in step["answers"]):
            for block in step["state"]["sums"].values():
                got.setdefault(block["block"], clock.ends[number])
    top, own = middle - _RANK_HEIGHT / 2, f"r{rank % 4}"
    drawn = [_box("card", 8, top, _RANK_WIDTH, _RANK_HEIGHT, 8), _box(own, 8, top, 6, _RANK_HEIGHT, 3)]
    drawn.append(_text("bold", 22, top + 17, f"rank {rank}"))
    each = (_RANK_WIDTH - 24) / document["blocks"]
    for block in range(document["blocks"]):
        x = 22 + each * block
        if block in sent:
            drawn.append(_box(f"own {own}", x, top + 24, each - 1.5, 16))
            drawn.append(clock.during(sent[block], clock.total, _box(own, x, top + 24, each - 1.5, 16)))
        else:
            drawn.append(f'<circle class="dot" cx="{x + each / 2:.1f}" cy="{top + 33:g}" r="1.2"/>')
        if block in got:
            drawn.append(clock.during(got[block], clock.total, _box("got", x, top + 45, each - 1.5, 4)))
    return "".join(drawn)


def _version(document: Mapping[str, Any], step: Mapping[str, Any], top: float) -> str:
    """Draw what a version of a slot holds: the round, the ranks seen, and each column's sum and least key."""
    state, left, columns = step["state"], _SWITCH_AT + 5, document["columns"]
    kind, words = ("done", "complete") if state["complete"] else ("row", "filling")
    drawn = [_box(kind, left, top, _WIDTH - left - 13, _ROW, 6)]
    drawn.append(_text("bold", left + 8, top + 17, f"round {step['round'] - document['bases'][str(step['slot'])]}"))
    drawn.append(_text("small dim", left + 8, top + 57, words))
    for rank in range(document["ranks"]):
        kind = f"r{rank % 4}" if state["seen"] >> rank & 1 else "card"
        drawn.append(_box(kind, left + 8 + 19 * rank, top + 25, 16, 16, 3))
        drawn.append(_text(f"small on{kind}", left + 16 + 19 * rank, top + 37, f"{rank}", "middle"))
    wide = (_WIDTH - left - 116) / columns
    for column in range(columns):
        x, key, block = left + 98 + wide * column, state["keys"][column], state["sums"].get(str(column))
        drawn.append(_box("card", x, top + 4, wide - 4, _ROW - 8, 4))
        drawn.append(_text("small dim", x + 5, top + 57, f"next {'–' if key is None else key}"))
        if block is None or block["block"] is None:
            continue
        drawn.append(_text("small bold", x + 5, top + 17, f"Σ block {block['block']}"))
        ends = range(8, len(block["words"]) + 1, 8)
        numbers = [_number(int(block["words"][end - 8 : end], 16), block["shift"] or 0) for end in ends]
        for line in (0, 1):
            drawn.append(_text("sums", x, top + 31 + 12 * line, "".join(numbers[4 * line : 4 * line + 4])))
    return "".join(drawn)


def _number(word: int, shift: int) -> str:
    return f"{(word - (word >> 31 << 32)) / 2**shift:g}".replace("-", "−").rjust(5)
