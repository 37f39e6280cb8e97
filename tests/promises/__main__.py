"""A campaign: python -m tests.promises [--seeds 1-500] [--steps 40] [--no-shrink]. Exit code 1: some seed shows a fault."""
import argparse
import logging
import sys

from tests.promises.run import fault, shortest, steps_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.promises", description=__doc__)
    parser.add_argument("--seeds", default="1-500", help="A-B, or one")
    parser.add_argument("--steps", type=int, default=40, help="of each sequence")
    parser.add_argument("--no-shrink", action="store_true")
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    logging.disable(logging.CRITICAL)
    wrong = []
    for seed in range(int(first), int(last or first) + 1):
        steps = steps_of(seed, args.steps)
        error = fault(steps)
        if error is None:
            continue
        wrong.append(seed)
        print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        if not args.no_shrink:
            steps = shortest(steps)
            print(f"seed {seed}, shortest: {steps}\n    {fault(steps, 3)!r}", flush=True)
    print(f"{int(last or first) - int(first) + 1} sequences of {args.steps} steps, {len(wrong)} with a fault: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
