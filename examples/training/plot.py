"""Draws a table of two columns as an SVG, with the standard library alone. The first column has a logarithmic axis.

    python3 plot.py buckets.csv buckets.svg

The first line of the table names the columns.
"""

import csv
import math
import sys

WIDTH, HEIGHT, MARGIN = 560, 320, 50


def picture(names, points):
    low, high = math.log(points[0][0]), math.log(points[-1][0])
    top = max(y for _, y in points)

    def at(x, y):
        return (MARGIN + (math.log(x) - low) / (high - low) * (WIDTH - 2 * MARGIN),
                HEIGHT - MARGIN - y / top * (HEIGHT - 2 * MARGIN))

    places = [at(x, y) for x, y in points]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
             'font-size="12" text-anchor="middle">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             f'<path d="M{MARGIN} {MARGIN}V{HEIGHT - MARGIN}H{WIDTH - MARGIN}" fill="none" stroke="black"/>',
             f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}">{names[0]}</text>',
             f'<text x="{MARGIN}" y="{MARGIN - 15}">{names[1]}</text>',
             '<polyline fill="none" stroke="steelblue" stroke-width="2" points="' +
             " ".join(f"{x:.1f},{y:.1f}" for x, y in places) + '"/>']
    for (x, y), (a, b) in zip(places, points):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="steelblue"/>')
        parts.append(f'<text x="{x:.1f}" y="{y - 8:.1f}">{b:.3g}</text>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - MARGIN + 15}">{a:g}</text>')
    return "\n".join(parts) + "\n</svg>\n"


table, target = sys.argv[1:]
with open(table, newline="") as file:
    names, *rows = csv.reader(file)
points = sorted((float(x), float(y)) for x, y in rows)
with open(target, "w") as file:
    file.write(picture(names, points))
print(f"{len(points)} points in {target}")
