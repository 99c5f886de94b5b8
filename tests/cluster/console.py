"""A Python that a test drives on a host: each line in is a list of code and names, each line out the last value."""

from __future__ import annotations

import ast
import json
import sys
import traceback
from typing import Any


def run(code: str, space: dict[str, Any]) -> Any:
    """Run code; return the value of its last line where that is an expression."""
    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<console>", "exec"), space)
    return eval(compile(ast.Expression(last.value), "<console>", "eval"), space) if last is not None else None


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr
    space = vars(sys.modules["__main__"])  # functions of this module are pickled by value
    for line in sys.stdin:
        code, names = json.loads(line)
        try:
            space.update(names)
            answer = {"value": run(code, space)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        out.write(json.dumps(answer, default=str) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
