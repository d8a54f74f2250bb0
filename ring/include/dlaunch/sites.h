/* Training over several sites: groups of hosts behind slow lines. C API, stable ABI, part of
 * libdlring.
 *
 * Each site is a job of its own, with its own communicator. The outer optimizers of all sites
 * (<dlaunch/outer.h>) then average over the sites: an average is a merge. Rank 0 of each site has
 * an endpoint, which talks to those of the other sites by TCP.
 *
 *   dl_sites_open(comm, NULL, &sites);            the sites of dlaunch --sites
 *   options.sites = sites;
 *   dl_outer_new(comm, &options, ...);
 *   while (dl_outer_steps(outer) < steps) {       not a count of your own, see below
 *     an inner step on this rank alone
 *     dl_outer_step(outer);
 *   }
 *   dl_outer_finish(outer);
 *   dl_outer_free(outer);
 *   dl_sites_close(sites);
 *
 * At the start each endpoint waits until all sites have come. All begin with the parameters of the
 * first site in the list. After that no site waits for one that has died or is cut off: a merge
 * needs a quorum of the sites that were in the one before. A quorum is more than half of them, or
 * half with the first one among them. So the sites may be lost one after the other until one is
 * left, and of two halves only one goes on; the other half waits, for wait_s at most. If sites are
 * lost for good together with the quorum, end the jobs, take those sites out of the list, and start
 * the rest with a state that the program has saved (dl_outer_shared(), and its parameters): without
 * one the rest begin from nothing.
 *
 * A site that was late, cut off or restarted comes back: it takes the merges that it has missed
 * from another site, or the whole state of the outer optimizer. The number of its steps then jumps
 * to that of the others. So a loop that ends with dl_outer_steps() ends at all sites with the same
 * parameters. Call dl_outer_finish() at the same numbers of steps at all sites. If that call finds
 * the others at more steps, it takes their state, and dl_outer_steps() says so; if it finds them at
 * fewer steps, it takes part in their averages up to its own number, without work of its own.
 *
 * A site that has finished waits in dl_sites_leave() for the sites that it has lost, for linger_s
 * at most: they may come back, and take the result. One that comes back later finds nobody, and
 * ends after wait_s.
 *
 * What a site contributes counts in one merge or in none. If a merge was made without it, its
 * work comes with its next contribution (DL_SITES_CARRY), or is dropped. A site that takes the
 * whole state drops it, too. If a restarted site finds that a merge has a contribution of its
 * earlier life, it drops what it has done in that merge's part of the parameters, and what its
 * residual has of it.
 *
 * dl_outer_settle() does not wait for a merge in the background: that is not part of the state, and
 * the other sites bring it after a recovery. After dl_outer_restored(), which a new round of an
 * elastic job needs, too, the next step starts a new endpoint, on the host of the new rank 0: let
 * that be one with the address in the list.
 *
 * A site may wait for others for as long as wait_s: --hang-timeout does not take that for a hang.
 * Where a site has one rank, each step of the outer optimizer is a dl_heartbeat() for that.
 *
 * All sites have the same list, options and tensors, and the same secret (DLAUNCH_SECRET_FILE). One
 * outer optimizer of a process averages over the sites: a second one, over ranks alone, has sites =
 * NULL (in Python sites=False).
 *
 * Each merge gives the same bits at all sites; two sites that differ both fail with
 * DL_ERR_MISMATCH.
 */
#ifndef DLAUNCH_SITES_H
#define DLAUNCH_SITES_H

#include "dlaunch/ring.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dl_sites dl_sites;

#define DL_SITES_MOST 16 /* sites */

/* What becomes of a contribution that comes too late for its merge. */
typedef enum dl_sites_late {
  DL_SITES_CARRY = 0, /* it is part of the next one */
  DL_SITES_DROP = 1
} dl_sites_late;

/* Set every field by dl_sites_options_init() first. */
typedef struct dl_sites_options {
  size_t struct_size;  /* sizeof(dl_sites_options) */
  const char* sites;   /* "NAME=HOST:PORT,..."; NULL: DLAUNCH_SITES. The same at all sites */
  const char* site;    /* the name of this one; NULL: DLAUNCH_SITE */
  double grace_s;      /* how long a merge waits for late sites once it has a quorum; negative:
                          DLAUNCH_SITE_GRACE, else 10 */
  double timeout_s;    /* a site that is silent for so long is cut off; negative:
                          DLAUNCH_SITE_TIMEOUT, else 5. After three fifths of it the others no
                          longer wait for its contribution, and another site proposes if it did */
  double wait_s;       /* a site that has had no quorum for so long ends with DL_ERR_TIMEOUT;
                          0: never; negative: DLAUNCH_SITE_WAIT, else 1800 */
  double linger_s;     /* after the end a site waits so long for those that it has lost; negative:
                          DLAUNCH_SITE_LINGER, else 60 */
  const char* journal; /* the folder of this site's journal, the file NAME.journal; NULL:
                          DLAUNCH_SITE_JOURNAL, else none */
  dl_sites_late late;  /* default DL_SITES_CARRY */
} dl_sites_options;

DL_API void dl_sites_options_init(dl_sites_options* options);

/* options may be NULL. Checks them on each rank; the first step of an outer optimizer with these
 * sites starts the endpoint. Not collective. comm must outlive the sites, and these the outer
 * optimizer: one at a time. DL_ERR_INVALID: there are no such sites, an option is wrong,
 * or the communicator has no secret. */
DL_API dl_result dl_sites_open(dl_comm* comm, const dl_sites_options* options, dl_sites** sites);
/* Rank 0 waits until the sites that are connected have the newest merge, for at most the grace, and
 * after dl_outer_finish() for those that it has lost, for at most linger_s. Then it ends its
 * endpoint: the other sites go on without this one. So does exit(), and a return from
 * main(). An outer optimizer with these sites can do no more steps: they return DL_ERR_INVALID on
 * all ranks. Not collective. */
DL_API void dl_sites_leave(dl_sites* sites);
/* Leaves, and frees the sites, which no outer optimizer uses any longer. NULL is allowed. */
DL_API void dl_sites_close(dl_sites* sites);

/* Facts on this rank as of the last merge that it has applied. Sites are bits of a mask, by their
 * place in the list. Any thread may ask, also during a step. */
typedef struct dl_sites_info {
  size_t struct_size;   /* set it to sizeof(dl_sites_info) */
  int sites;            /* how many there are */
  int site;             /* the place of this one */
  uint64_t merges;      /* the number of the last merge */
  uint64_t epoch;       /* grows whenever all sites begin together */
  uint32_t contributed; /* the sites in the last merge; 0 until this site has applied one */
  uint32_t members;     /* the sites that vote about the next one */
  uint64_t carried;     /* contributions of this site that came too late for their merge */
  uint64_t jumps;       /* how often this site has skipped steps to catch up */
  /* Of rank 0; 0 on others. */
  uint64_t bytes_sent[DL_SITES_MOST];     /* to each site */
  uint64_t bytes_received[DL_SITES_MOST]; /* from each site */
} dl_sites_info;

DL_API dl_result dl_sites_get_info(dl_sites* sites, dl_sites_info* info);
/* The name of a site; NULL: there is no such site. Valid until dl_sites_close(). */
DL_API const char* dl_sites_name(const dl_sites* sites, int site);

/* -- The journal of a site: the merges, with the contributions. A state is a function of an
 * earlier one and the merges since, so it can be computed again: replayed. python -m
 * dlaunch.journal prints and replays journals by these calls. A file that has grown by several
 * states becomes NAME.journal.1, and replaces the one that had this name: the last merges stay, not
 * all. The next file begins with the start that the site had, and a snapshot. */

typedef struct dl_journal dl_journal;

typedef enum dl_journal_kind {
  DL_JOURNAL_START = 0,    /* a site began to write */
  DL_JOURNAL_MERGE = 1,    /* it applied a merge */
  DL_JOURNAL_FOUNDING = 2, /* all sites began together with its state */
  DL_JOURNAL_SNAPSHOT = 3  /* the whole state follows */
} dl_journal_kind;

typedef struct dl_journal_entry {
  size_t struct_size; /* set it to sizeof(dl_journal_entry) */
  dl_journal_kind kind;
  int64_t when_ns; /* since 1970 */
  int site;        /* of a start: the site whose journal this is */
  uint64_t epoch;  /* of the merge, or of the one after which the state is */
  uint64_t number;
  uint32_t contributed;   /* the sites whose contributions are in the merge */
  uint32_t members;       /* the sites that vote about the next one */
  uint64_t bytes;         /* of the contributions, or the state */
  uint64_t hash;          /* of the state then, as the site has computed it */
  int replayed;           /* 1: computed again; 0: nothing to begin from, or no replay was asked */
  uint64_t replayed_hash; /* the same bits give the same hash */
} dl_journal_entry;

/* The text of an error is that of dl_last_error(NULL). */
DL_API dl_result dl_journal_open(const char* path, dl_journal** journal);
DL_API void dl_journal_close(dl_journal* journal); /* NULL is allowed */
/* The next entry; *end is 1 if there is none. replay 1: computes the state, too; in all calls or in
 * none. */
DL_API dl_result dl_journal_next(dl_journal* journal, int replay, dl_journal_entry* entry,
                                 int* end);
/* The name of a site, by the last start; NULL: there is none. Valid until the next call. */
DL_API const char* dl_journal_site(const dl_journal* journal, int site);
/* 1: the last record was not written to its end: the site was killed, or its disk is full. */
DL_API int dl_journal_torn(const dl_journal* journal);

#ifdef __cplusplus
}
#endif

#endif /* DLAUNCH_SITES_H */
