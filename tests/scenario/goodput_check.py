"""goodput_check.py REPORT EXPRESSION…: whether the accounts of a report close, and each expression holds."""
import json, sys
report = json.load(open(sys.argv[1]))
g = report["goodput"]
ranks = g["ranks"]
def due(key, culprit):  # to that rank, from all ranks, as a share of all rank-seconds
    return sum(part["s"] for rank in ranks for part in rank[key] if part["rank"] == culprit) / g["rank_seconds"]
def near(share, expected):  # within 2 % of the job's time
    return abs(share - expected) <= 0.02
total = g["rank_seconds"]
for rank in ranks:
    accounts = rank["compute_s"] + rank["transfer_s"] + rank["start_s"] + sum(
        part["s"] for key in ("waiting", "recovery", "lost_work") for part in rank[key])
    if abs(accounts - rank["wall_s"]) > 0.001 * rank["wall_s"] or abs(rank["wall_s"] - report["ran_s"]) > 0.001 * report["ran_s"]:
        sys.exit(f"the books of {rank} do not close: {accounts} s, {rank['wall_s']} s, {report['ran_s']} s")
for expression in sys.argv[2:]:
    if not eval(expression):
        print(f"{expression} does not hold: {json.dumps(g, indent=1)}")
        sys.exit(3)
