"""Local training over sites that keeps an exact account of its inner steps, with one worker at each site, until the file
`enough` has the number of the last step. Each inner step adds 1 to an element of its own. So after each merge an element
is 0, or 1 divided by the number of contributions in the merge that counted the step; and it never changes again."""
import hashlib
import sys
import time

import numpy as np

import dlaunch
from sites_steps import last_step, tell

MOST_LIVES, MOST_STEPS = 8, 1024
comm = dlaunch.init()
life, late = int(sys.argv[1]), sys.argv[2]
sites = dlaunch.Sites(comm, late=late)
names, site = sites.info["sites"], sites.info["site"]
w = np.zeros(len(names) * MOST_LIVES * MOST_STEPS, np.float32)
mine = (names.index(site) * MOST_LIVES + life) * MOST_STEPS
outer = dlaunch.Outer(comm, [w], inner_steps=8, learning_rate=1, momentum=0, nesterov=False, sites=sites)
counted, epoch, merges, own = np.zeros_like(w), 0, 0, 0
shares = {-np.float32(1) / np.float32(k) for k in range(1, len(names) + 1)}


def check():
    """After a merge: w is the same at all sites."""
    global counted, epoch, merges
    info = sites.info
    if (info["epoch"], info["merges"]) == (epoch, merges):
        return
    if info["epoch"] == epoch:  # sites that begin together may lack the last merges of the epoch before
        before = counted != 0
        assert (w[before] == counted[before]).all(), f"a step was counted twice, or was taken back, in merge {info['merges']}"
    wrong = set(np.unique(w)) - shares - {0}
    assert not wrong, f"steps count as {wrong} in merge {info['merges']}"
    counted = w.copy()
    if info["epoch"] != epoch:  # when sites begin together, a site's newest steps are not merged yet
        counted[mine:mine + own] = np.where(counted[mine:mine + own] == -1, 0, counted[mine:mine + own])
    epoch, merges = info["epoch"], info["merges"]


while outer.steps < last_step():
    assert own < MOST_STEPS, "too many steps for this account"
    w[mine + own] -= 1
    own += 1
    outer.step()
    check()
    tell(site, outer.steps, epoch, merges)
    time.sleep(0.005)
outer.finish()
check()
print(f"account {hashlib.sha256(w.tobytes()).hexdigest()} after {outer.steps} steps, {merges} merges; "
      f"{np.count_nonzero(w[mine:mine + own])} of {own} own steps counted; jumps {sites.info['jumps']}, carried {sites.info['carried']}", flush=True)
