//! Ends before the end: signals, readers that leave, full disks, places that cannot be written to.

use crate::row::Given::{Bytes, Folder};
use crate::row::Meanwhile::{ReaderLeaves, Signal, SignalAfter};
use crate::row::{Given, Row, ends_well, fails, usage};

const OLD: (&str, Given) = ("rows", Bytes(b"old\n"));
/// A run of a second or more, if nothing ends it.
const LONG: &str = "exec minflt bench pft --rounds 1000 --size 16M --threads 2 --quiet --json rows";
const PAGE: &[&str] = &["o/report.html"];

pub(crate) const ROWS: &[Row] = &[
    // Signals.
    fails(
        "Ctrl-C at a bench",
        LONG,
        &["interrupted", "nothing was written"],
    )
    .status(130)
    .given(&[OLD])
    .meanwhile(SignalAfter("INT", 1000)),
    fails(
        "a request to end a bench",
        "exec minflt bench pft --rounds 1000 --size 16M --quiet",
        &["interrupted", "nothing was written"],
    )
    .status(130)
    .meanwhile(SignalAfter("TERM", 1000)),
    fails(
        "Ctrl-C at a search",
        "exec minflt check --all --quiet --schedules 100000",
        &["interrupted", "nothing was written"],
    )
    .status(130)
    .meanwhile(SignalAfter("INT", 1000)),
    fails(
        "Ctrl-C at a page",
        "exec minflt reproduce --quiet --out o",
        &["interrupted", "o/report.html", "--resume"],
    )
    .status(130)
    .prints(&["minflt "])
    .leaves(PAGE)
    .meanwhile(Signal("INT")),
    // Readers and standard streams.
    ends_well("a reader who leaves a list", "exec minflt races", &[]).meanwhile(ReaderLeaves),
    ends_well(
        "a reader who leaves the help",
        "exec minflt bench --help",
        &[],
    )
    .meanwhile(ReaderLeaves),
    ends_well(
        "a reader who leaves, and rows",
        "exec minflt bench pft --size 64K --on sim --threads 1 --quiet --save kept",
        &[],
    )
    .leaves(&["results/saved/kept.json"])
    .meanwhile(ReaderLeaves),
    fails(
        "a full disk for a list",
        "minflt races >/dev/full",
        &["cannot write to standard output", "No space left"],
    ),
    fails(
        "a full disk for the help",
        "minflt help >/dev/full",
        &["cannot write to standard output", "No space left"],
    ),
    fails(
        "a full disk for a page of the manual",
        "minflt man >/dev/full",
        &["cannot write to standard output", "No space left"],
    ),
    fails(
        "a full disk for a table, and rows",
        "minflt bench pft --size 64K --on sim --threads 1 --quiet --json rows >/dev/full",
        &["cannot write to standard output", "No space left"],
    )
    .leaves(&["rows"]),
    ends_well(
        "a reader who leaves, and data",
        "exec minflt machines --json rows",
        &[],
    )
    .leaves(&["rows"])
    .meanwhile(ReaderLeaves),
    ends_well(
        "a reader who leaves, and curves",
        "exec minflt curves mmap1 --machine kvm16 --threads 1 --era best --seeds 1 --quiet --out .",
        &[],
    )
    .leaves(&["scaling.md", "scaling/mmap1.svg"])
    .meanwhile(ReaderLeaves),
    usage(
        "a full disk for errors",
        "minflt bench nope 2>/dev/full",
        &[],
    ),
    usage("no place for errors", "minflt bench nope 2>&-", &[]),
    ends_well("no standard output", "minflt eras >&-", &[]),
    ends_well("no standard input", "minflt eras <&-", &["linux-4.13"]),
    // Files that cannot be written to.
    fails(
        "a full disk for rows",
        "minflt bench pft --on sim --threads 1 --size 64K --quiet --json /dev/full",
        &["--json: cannot write /dev/full", "No space left"],
    )
    .prints(&["pft"]),
    fails(
        "a full disk for data",
        "minflt machines --json /dev/full",
        &["--json: cannot write /dev/full", "No space left"],
    )
    .prints(&["altix32"]),
    fails(
        "rows into a folder",
        "minflt bench pft --size 64K --json d",
        &["--json: cannot write d", "name a file in it"],
    )
    .given(&[("d", Folder)]),
    fails(
        "rows into no folder",
        "minflt bench pft --size 64K --json no/rows",
        &["--json: cannot write no/rows", "No such file"],
    ),
    fails(
        "rows below a file",
        "minflt bench pft --size 64K --json rows/more",
        &["--json: cannot write rows/more", "Not a directory"],
    )
    .given(&[OLD]),
    fails(
        "rows where nothing can be",
        "minflt bench --proof --json /proc/rows",
        &["--json: cannot write /proc/rows"],
    ),
    fails(
        "kept rows below a file",
        "minflt bench pft --save kept",
        &[
            "--save: cannot write results/saved/kept.json",
            "Not a directory",
        ],
    )
    .given(&[("results", Bytes(b"old\n"))]),
    fails(
        "a flame graph into a folder",
        "minflt bench pft --on sim --threads 1 --size 64K --flame d",
        &["--flame: cannot write d", "name a file in it"],
    )
    .given(&[("d", Folder)]),
    fails(
        "a profile into no folder",
        "minflt bench pft --on sim --threads 1 --size 64K --profile no/a",
        &["--profile: cannot write no/a", "No such file"],
    ),
    fails(
        "curves below a file",
        "minflt curves pft --out rows",
        &["--out: cannot write into rows", "Not a directory"],
    )
    .given(&[OLD]),
    fails(
        "curves' rows into a folder",
        "minflt curves pft --json d",
        &["--json: cannot write d", "name a file in it"],
    )
    .given(&[("d", Folder)]),
    fails(
        "curves into a page of another kind",
        "minflt curves pft --out .",
        &["--out: ./scaling.md", "generated"],
    )
    .given(&[("scaling.md", Bytes(b"# Mine\n"))]),
    fails(
        "curves into a page that is no text",
        "minflt curves pft --out .",
        &["--out: ./scaling.md", "UTF-8"],
    )
    .given(&[("scaling.md", Bytes(b"\xff\n"))]),
    fails(
        "this machine into a folder",
        "minflt calibrate --host --out d",
        &["--out: cannot write d", "name a file in it"],
    )
    .given(&[("d", Folder)]),
    fails(
        "machines into no folder",
        "minflt machines --json no/rows",
        &["--json: cannot write no/rows", "No such file"],
    ),
    fails(
        "a page into a file",
        "minflt reproduce --out rows",
        &["--out: cannot write into rows", "File exists"],
    )
    .given(&[OLD]),
    fails(
        "a page where nothing can be",
        "minflt reproduce --out /proc/o",
        &["--out: cannot write into /proc/o"],
    ),
    fails(
        "a page's rows into a folder",
        "minflt reproduce --out o --json d",
        &["--json: cannot write d", "Is a directory"],
    )
    .given(&[("d", Folder), ("o", Folder)]),
    usage(
        "pages of the manual into a file",
        "minflt man rows",
        &["man: rows is no directory", "give one"],
    )
    .given(&[OLD]),
    fails(
        "pages of the manual where nothing can be",
        "minflt man /proc/man1",
        &["man: cannot write into /proc/man1"],
    ),
    // A limit on the size of files is a disk that is full midway; the old file stays.
    fails(
        "a disk that is full midway",
        "trap '' XFSZ; ulimit -f 1; exec minflt machines --json rows >/dev/null",
        &["--json: cannot write rows", "File too large"],
    )
    .given(&[OLD]),
    fails(
        "a disk that is full midway in a page of the manual",
        "trap '' XFSZ; ulimit -f 1; exec minflt man .",
        &["man: cannot write into .", "File too large"],
    )
    .given(&[OLD, ("minflt.1", Bytes(b"old\n"))]),
    // What is refused loses no file that is there.
    usage(
        "a wrong line with a file of rows",
        "minflt bench pft --threads 0 --json rows",
        &["--threads", "such as 1,2,4"],
    )
    .given(&[OLD]),
    usage(
        "a wrong mix with a file of rows",
        "minflt bench pft --era spf-2017 --reclamation immediate --json rows",
        &["refused", "use reclamation"],
    )
    .given(&[OLD]),
    usage(
        "a wrong posting with a page",
        "minflt reproduce 1999 --out . --json rows",
        &["`1999`", "postings are"],
    )
    .given(&[OLD, ("report.html", Bytes(b"<html>"))]),
    // One CPU.
    usage(
        "docs on one CPU",
        "taskset -c 0 minflt reproduce --docs",
        &["--docs: measured rows need two processors", "may use 1"],
    )
    .needs("taskset"),
    ends_well(
        "a bench on one CPU",
        "taskset -c 0 minflt bench pft --threads 2 --size 64K --quiet",
        &["pft"],
    )
    .needs("taskset"),
];
