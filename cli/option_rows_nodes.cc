// The rows of the option table: the hosts, and how they meet.
#include "cli/option_rows.h"

namespace dlaunch {
namespace {

constexpr OptionRow kNodesRows[] = {
    {"hosts", "H", "host", "HOST[:N],...", "", Group::nodes,
     "Start the job on these hosts, with as many workers on each as it has slots (1 if you "
     "give none). dlaunch reaches hosts other than this one by ssh: [user@]node[01-16]:8",
     &Options::hosts, kCommon},
    {"hostfile", "", "machinefile f", "FILE", "", Group::nodes,
     "Read the hosts from a file in the format of Open MPI, Horovod, DeepSpeed or MPICH",
     &Options::hostfile, kCommon},
    {"ssh-command", "", "launch-agent launcher-exec rsh-agent ssh-cmd", "COMMAND", "ssh",
     Group::nodes,
     "How to reach the other hosts. dlaunch puts ssh's options and the host behind these "
     "words. ssh checks host keys and asks no questions",
     &Options::ssh_command},
    {"ssh-port", "", "", "PORT", "", Group::nodes,
     "The port of the other hosts' sshd. The hostfile may name another one for a host",
     &Options::ssh_port},
    {"ssh-identity-file", "", "", "FILE", "", Group::nodes,
     "The private key for logging in to the other hosts", &Options::ssh_identity_file},
    {"include", "", "", "HOST[:GPU,...][@HOST...]", "", Group::nodes,
     "Use only these hosts, and only these GPUs on them, in DeepSpeed's notation. localhost is "
     "this machine",
     &Options::include},
    {"exclude", "", "", "HOST[:GPU,...][@HOST...]", "", Group::nodes,
     "Do not use these hosts, or these GPUs on them", &Options::exclude},
    {"ssh-logins", "", "", "N", "32", Group::nodes,
     "Log in to at most this many hosts at the same time, also from each host that logs in to "
     "others",
     &Options::ssh_logins},
    {"ssh-tree", "", "", kChoices<kSshTreeWords>, "off", Group::nodes,
     "Let started hosts log in to further hosts, if there are more than --ssh-logins. With auto "
     "they do so until one of them fails; with on also after failures, and if "
     "--ssh-command is another program than ssh. The output of those further hosts comes by TCP, "
     "encrypted only with --tls. With off this host logs in to all",
     &Options::ssh_tree},
    {"host-discovery-script", "", "", "COMMAND", "", Group::nodes,
     "Run this command every second to list the hosts, instead of --hosts. It prints HOST:SLOTS "
     "lines. New hosts join, up to the MAX of --nnodes, and hosts that it no longer lists leave",
     &Options::host_discovery_script},
    {"health-check", "", "", "COMMAND", "", Group::nodes,
     "Run this shell command on a host before it joins a running job, after dlaunch's own quick "
     "test. If the command does not end with 0 within a minute, the host stays out. dlaunch then "
     "shows the last line of its output as the reason, and tests the host again later",
     &Options::health_check},
    {"nnodes", "", "num-machines num-nodes", "N|MIN:MAX", "1", Group::nodes,
     "How many hosts the job has. Each of them runs this same command, unless --hosts starts them. "
     "With MIN:MAX the job begins with MIN hosts, continues with as few, and accepts others up to "
     "MAX",
     &Options::nnodes, kCommon},
    {"node-rank", "", "machine-rank", "N", "", Group::nodes,
     "The number of this host. Host 0 leads. Without this option the host that --rdzv names "
     "leads, and dlaunch numbers the others as they come",
     &Options::node_rank},
    {"topology", "", "", "FILE|slurm", "", Group::nodes,
     "Give neighbouring ranks to the hosts of one rack, and let large sums cross the lines between "
     "racks once for each rack. The leader's FILE names the hosts below each switch, in the format "
     "of Slurm's "
     "topology.conf. With slurm each host takes its rack from its SLURM_TOPOLOGY_ADDR",
     &Options::topology},
    {"rack", "", "", "NAME", "", Group::nodes,
     "The rack of this host, in place of the one in --topology. Dots separate levels, as in "
     "room1.rack7",
     &Options::rack},
    {"host-timeout", "", "", "TIME", "3s", Group::nodes,
     "A host is lost if it is silent for this long: 2s or more, and the same on all hosts. Ranks "
     "that use libdlring wait for 5s, or for this time if it is longer",
     &Options::host_timeout},
    {"standalone", "", "", "", "", Group::nodes, "The job has this host only, which is the default",
     &Options::standalone},
    {"rdzv", "", "rdzv-endpoint", "URL", "a free port", Group::nodes,
     "Where the hosts meet. At tcp://HOST:PORT the leading dlaunch listens on one of its own "
     "addresses. A shared folder (file:///FOLDER) or etcd (etcd://HOST:PORT,HOST:PORT/PREFIX, "
     "etcds:// by TLS) tells them which host leads",
     &Options::rdzv, kCommon | kWorkerVar},
    {"rdzv-backend", "", "", "c10d|static", "", Group::nodes,
     "This changes nothing: both words mean dlaunch's own store", &Options::rdzv_backend, kHidden},
    {"master-addr", "", "main-process-ip", "HOST", "127.0.0.1", Group::nodes,
     "The workers' MASTER_ADDR, an address of this host. On several hosts without --rdzv it is "
     "also where the hosts meet",
     &Options::master_addr},
    {"master-port", "", "main-process-port", "PORT", "a free port", Group::nodes,
     "The workers' MASTER_PORT. dlaunch reserves it for them while the job runs",
     &Options::master_port},
    {"job-id", "", "rdzv-id", "NAME", "random", Group::nodes,
     "The name of this job. Its processes refuse those of another job", &Options::job_id,
     kWorkerVar},
    {"secret-file", "", "", "FILE", "a new one", Group::nodes,
     "The file with the secret that the processes of this job prove to each other. It has mode "
     "0600 and at least 16 bytes",
     &Options::secret_file, kWorkerVar},
    {"journal", "", "", "FILE", "in $TMPDIR", Group::nodes,
     "The leading dlaunch of hosts that meet by tcp:// writes each round to this file. You can "
     "then kill it and start it again while the workers of other hosts go on. Under Slurm, a "
     "job that returns to the queue finds there how many of --max-restarts are left",
     &Options::journal},
    {"sites", "", "", "FILE|NAME=HOST:PORT,...", "", Group::nodes,
     "Train together with other jobs, behind slow lines: libdlring's outer optimizers then average "
     "over these sites. Each site is one such job with the same list: a file with a line 'NAME "
     "HOST:PORT' for each, the address at which the other sites reach its rank 0. All need the "
     "same --secret-file",
     &Options::sites, kWorkerVar},
    {"site", "", "", "NAME", "by the address", Group::nodes,
     "Which of the --sites this job is. Without this option it is the one that has an address of "
     "this machine",
     &Options::site, kWorkerVar},
    {"site-grace", "", "", "TIME", "10s", Group::nodes,
     "How long the other sites wait for a late one once a quorum of them has contributed to an "
     "average: the same at all sites. They do not wait for a silent one: see --site-timeout",
     &Options::site_grace, kWorkerVar},
    {"site-timeout", "", "", "TIME", "5s", Group::nodes,
     "A site is cut off if it is silent for this long: 1s or more, and the same at all sites. "
     "After three fifths of this time the others no longer wait for its contribution",
     &Options::site_timeout, kWorkerVar},
    {"site-wait", "", "", "TIME", "30m", Group::nodes,
     "A site that reaches no quorum of the sites for this long ends with an error. 0: it waits "
     "without limit",
     &Options::site_wait, kWorkerVar},
    {"site-linger", "", "", "TIME", "1m", Group::nodes,
     "A site that has finished its training waits this long for sites that it has lost, so that "
     "they can come back and take the result. 0: not at all",
     &Options::site_linger, kWorkerVar},
    {"site-journal", "", "", "DIR", "none", Group::nodes,
     "Write the averages over the sites into a file of this folder, which python -m "
     "dlaunch.journal prints and replays. A file that has grown by several states becomes "
     "NAME.journal.1, in place of an earlier one, and a new file begins",
     &Options::site_journal, kWorkerVar},
    {"emit", "", "", "kubernetes|jobset|trainjob|lws", "", Group::nodes,
     "Do not run the job, but write it to stdout as YAML for Kubernetes, with one pod for each "
     "of --nnodes: as a Job, a JobSet, a TrainJob of Kubeflow Trainer or a LeaderWorkerSet",
     &Options::emit},
    {"image", "", "", "IMAGE", "", Group::nodes,
     "With --emit: the container image, which has dlaunch and the program in it", &Options::image},
    {"queue", "", "", "NAME", "none", Group::nodes,
     "With --emit: the queue of Kueue in which the job waits", &Options::queue},
    {"gpus", "", "", "N", "none", Group::nodes, "With --emit: how many GPUs each pod gets",
     &Options::gpus},
};

}  // namespace

std::span<const OptionRow> nodes_rows() { return kNodesRows; }

}  // namespace dlaunch
