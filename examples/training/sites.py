"""Training over sites: jobs behind slow lines train together, and none of them waits for a site that is lost.

    $ umask 077; head -c 32 /dev/urandom | base64 >sites.secret; \
      { for site in alps lake sea; do dlaunch --sites alps=127.0.0.1:29471,lake=127.0.0.1:29472,sea=127.0.0.1:29473 \
      --site $site --secret-file sites.secret sites.py & done; wait; } | sort; rm sites.secret
    [0] alps: 15 merges, the last with alps, lake, sea; error 0.0…
    [0] lake: 15 merges, the last with alps, lake, sea; error 0.0…
    [0] sea: 15 merges, the last with alps, lake, sea; error 0.0…

Here the sites are three jobs of one machine. Elsewhere each of them starts its own job, with a list of the addresses in a
file: dlaunch --sites FILE --secret-file FILE sites.py. The outer optimizer finds the sites by itself. A site that is killed
can start again: it takes the state and the steps of the others.
"""

import numpy as np

import dlaunch

STEPS = 300
comm = dlaunch.init()
truth = np.random.default_rng(1).normal(size=50).astype("float32")
w = np.zeros_like(truth)
outer = dlaunch.Outer(comm, [w], inner_steps=20, codec="int8")
site = outer.sites.info["site"]
place = outer.sites.info["sites"].index(site)

while outer.steps < STEPS:  # a site that comes back, or was late, skips steps
    random = np.random.default_rng([place, comm.rank, outer.steps])  # this rank's own samples
    x = random.normal(size=(32, len(w))).astype("float32")
    y = x @ truth
    w -= np.float32(0.01) * (x.T @ (x @ w - y)) / 32
    outer.step()
outer.finish()  # equal at all sites
if comm.rank == 0:
    info = outer.sites.info
    print(f"{site}: {info['merges']} merges, the last with {', '.join(info['contributed'])}; "
          f"error {np.abs(w - truth).mean():.3f}", flush=True)
