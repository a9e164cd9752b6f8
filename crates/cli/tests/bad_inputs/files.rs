//! Broken machine files and files of rows.

use crate::row::Given::{Bytes, Folder, Machine, Rows, Zeros};
use crate::row::{Given, Row, ends_well, fails, usage};

const SHOW: &str = "minflt machines --show m.toml";
const COMPARE: &str = "minflt compare a b";

/// The machine file of kvm16 with something wrong.
const fn machine(
    name: &'static str,
    given: &'static [(&'static str, Given)],
    says: &'static [&'static str],
) -> Row {
    usage(name, SHOW, says).given(given)
}

const GOOD: (&str, Given) = ("a", Rows("here", "here"));
const COUNT: &str = "cpus = { value = 16,";
const HIT: &str = "hit = { value = 1.7, src = \"measured\"";
const NAME: &str = "name = \"mine\"";

pub(crate) const ROWS: &[Row] = &[
    ends_well("a machine of one's own", SHOW, &["mine: 16-CPU x86"])
        .given(&[("m.toml", Machine("", ""))]),
    machine(
        "an empty machine",
        &[("m.toml", Bytes(b""))],
        &["m.toml:1: missing field", "add it"],
    ),
    machine(
        "a machine that is no text",
        &[("m.toml", Bytes(b"\xff\xfe\x00"))],
        &["m.toml: cannot be read", "UTF-8"],
    ),
    machine(
        "a machine that is a folder",
        &[("m.toml", Folder)],
        &["m.toml: cannot be read", "directory"],
    ),
    usage(
        "a machine that is not there",
        "minflt machines --show no/m.toml",
        &["no/m.toml: cannot be read", "No such file"],
    ),
    machine(
        "a machine without end",
        &[("m.toml", Zeros(2_000_000))],
        &["m.toml: larger than", "the limit for machine files"],
    ),
    usage(
        "a device for a machine",
        "minflt machines --show /dev/zero",
        &["/dev/zero", "larger than"],
    ),
    machine(
        "an unknown key",
        &[("m.toml", Machine("[ns]\n", "[ns]\nhut = 1\n"))],
        &["unknown field `hut`", "remove it"],
    ),
    machine(
        "an unknown key of a number",
        &[(
            "m.toml",
            Machine(
                HIT,
                "hit = { value = 1.7, unit = \"ns\", src = \"measured\"",
            ),
        )],
        &["unknown field `unit`", "rename or remove it"],
    ),
    machine(
        "an unknown table",
        &[("m.toml", Machine("[ns]\n", "[us]\na = 1\n[ns]\n"))],
        &["unknown field `us`", "remove it"],
    ),
    machine(
        "a key twice",
        &[("m.toml", Machine("[ns]\n", "[ns]\nwalk = 1\n"))],
        &["duplicate key", "m.toml:"],
    ),
    machine(
        "a table twice",
        &[("m.toml", Machine("[ns]\n", "[shape]\n[ns]\n"))],
        &["duplicate key", "m.toml:"],
    ),
    machine(
        "a missing key",
        &[("m.toml", Machine(HIT, "# {"))],
        &["missing field `hit`", "add it"],
    ),
    machine(
        "numbers in another table",
        &[("m.toml", Machine("[bytes_per_us]", "[reads]"))],
        &["unknown field `clear_far`", "move it to its table"],
    ),
    machine(
        "no source",
        &[("m.toml", Machine(HIT, "hit = { value = 1.7"))],
        &["hit: missing field `src`", "a guess is allowed"],
    ),
    machine(
        "an unknown source",
        &[(
            "m.toml",
            Machine(HIT, "hit = { value = 1.7, src = \"rumour\""),
        )],
        &["unknown variant `rumour`", "use one of these"],
    ),
    machine(
        "a fitted number",
        &[(
            "m.toml",
            Machine(HIT, "hit = { value = 1.7, src = \"fitted\""),
        )],
        &["ns.hit: `fitted`", "give measured, posting or guess"],
    ),
    machine(
        "an empty citation",
        &[(
            "m.toml",
            Machine("cite = \"2017 posting: 16 CPU x86 VM\"", "cite = \"\""),
        )],
        &["shape.cpus: `cite` is empty", "give the source"],
    ),
    machine(
        "a word for a number",
        &[("m.toml", Machine(COUNT, "cpus = { value = \"many\","))],
        &["cpus: invalid type", "expected `key = {"],
    ),
    machine(
        "a bare number",
        &[("m.toml", Machine(COUNT, "cpus = 16 # {"))],
        &["cpus: invalid type", "expected `key = {"],
    ),
    machine(
        "a cost below zero",
        &[(
            "m.toml",
            Machine(HIT, "hit = { value = -1, src = \"measured\""),
        )],
        &["ns.hit = -1", "expected a value from"],
    ),
    machine(
        "a cost that is no number",
        &[(
            "m.toml",
            Machine(HIT, "hit = { value = nan, src = \"measured\""),
        )],
        &["ns.hit = NaN", "expected a value from"],
    ),
    machine(
        "a cost without end",
        &[(
            "m.toml",
            Machine(HIT, "hit = { value = inf, src = \"measured\""),
        )],
        &["ns.hit = inf", "expected a value from"],
    ),
    machine(
        "no CPU",
        &[("m.toml", Machine(COUNT, "cpus = { value = 0,"))],
        &["shape.cpus = 0", "expected a value from 1 to"],
    ),
    machine(
        "too many CPUs",
        &[("m.toml", Machine(COUNT, "cpus = { value = 4096,"))],
        &["shape.cpus = 4096", "expected a value from 1 to 2048"],
    ),
    machine(
        "half a CPU",
        &[("m.toml", Machine(COUNT, "cpus = { value = 16.5,"))],
        &["shape.cpus = 16.5", "expected an integer"],
    ),
    machine(
        "CPUs that do not divide",
        &[("m.toml", Machine(COUNT, "cpus = { value = 18,"))],
        &["does not divide cpus = 18", "use a divisor"],
    ),
    machine(
        "a page of no format",
        &[(
            "m.toml",
            Machine("page_bytes = { value = 4096", "page_bytes = { value = 8192"),
        )],
        &["shape.page_bytes = 8192", "expected 4096, 16384 or 65536"],
    ),
    machine(
        "a line of no power of two",
        &[(
            "m.toml",
            Machine("line_bytes = { value = 64", "line_bytes = { value = 65"),
        )],
        &["shape.line_bytes = 65", "a power of two"],
    ),
    machine(
        "a far line that is nearer",
        &[(
            "m.toml",
            Machine("far1 = { value = 118", "far1 = { value = 8"),
        )],
        &["ns.far1 = 8 is below die = 44", "raise the first"],
    ),
    machine(
        "an unknown arbitration",
        &[("m.toml", Machine("\"near-first\"", "\"luck\""))],
        &["unknown variant `luck`", "use one of these"],
    ),
    machine(
        "an arbitration without its number",
        &[("m.toml", Machine("\"near-first\"", "\"fifo\""))],
        &["near_first_permille = 300 needs", "or 0 here"],
    ),
    machine(
        "a name of two words",
        &[("m.toml", Machine(NAME, "name = \"my machine\""))],
        &["name = \"my machine\"", "use only letters"],
    ),
    machine(
        "a shipped machine's name",
        &[("m.toml", Machine(NAME, "name = \"rome256\""))],
        &["the name of a shipped machine", "rename this one"],
    ),
    machine(
        "no title",
        &[("m.toml", Machine("title = \"16", "title = \"\" # \"16"))],
        &["title is empty", "describe it"],
    ),
    machine(
        "a machine of a sentence",
        &[("m.toml", Bytes(b"sixteen processors\n"))],
        &["m.toml:1: ", "data/machines"],
    ),
    machine(
        "a quotation without end",
        &[("m.toml", Machine(NAME, "name = \"mine"))],
        &["m.toml:3: ", "data/machines"],
    ),
    usage(
        "a broken machine to run on",
        "minflt bench pft --on sim --machine m.toml --json rows",
        &["--machine: m.toml:", "expected a value from 1 to 2048"],
    )
    .given(&[
        ("m.toml", Machine(COUNT, "cpus = { value = 9999,")),
        ("rows", Bytes(b"old\n")),
    ]),
    // Files of rows.
    ends_well(
        "rows that are the same",
        COMPARE,
        &["no difference detectable"],
    )
    .given(&[GOOD, ("b", Rows("here", "here"))]),
    usage(
        "rows that are not there",
        COMPARE,
        &["b: No such file", "results/saved/b.json"],
    )
    .given(&[GOOD]),
    usage("no row", COMPARE, &["b: no rows", "to compare"]).given(&[GOOD, ("b", Bytes(b"\n\n"))]),
    fails(
        "rows that are no text",
        COMPARE,
        &["b: ", "UTF-8", "as `bench --json` writes it"],
    )
    .given(&[GOOD, ("b", Bytes(b"\xff\xfe\n"))]),
    fails("rows that are a folder", COMPARE, &["b: Is a directory"]).given(&[GOOD, ("b", Folder)]),
    fails(
        "rows that end midway",
        COMPARE,
        &["b: line 1: ", "as `bench --json` writes it"],
    )
    .given(&[GOOD, ("b", Bytes(b"{\"schema\":1,\n"))]),
    fails(
        "rows of another kind",
        COMPARE,
        &["b: line 1: ", "as `bench --json` writes it"],
    )
    .given(&[GOOD, ("b", Bytes(b"{\"machine\":\"altix32\"}\n"))]),
    fails(
        "rows of a later schema",
        COMPARE,
        &["b: line 1: ", "schema"],
    )
    .given(&[GOOD, ("b", Rows("\"schema\":1", "\"schema\":99"))]),
    fails(
        "a word for a rate",
        COMPARE,
        &["b: line 1: ", "as `bench --json` writes it"],
    )
    .given(&[
        GOOD,
        (
            "b",
            Rows(
                "\"faults_per_second\":1000.0",
                "\"faults_per_second\":\"fast\"",
            ),
        ),
    ]),
    fails(
        "threads below zero in a row",
        COMPARE,
        &["b: line 1: ", "as `bench --json` writes it"],
    )
    .given(&[GOOD, ("b", Rows("\"threads\":2", "\"threads\":-2"))]),
    usage(
        "rows of another machine",
        COMPARE,
        &["measured on two machines", "--across"],
    )
    .given(&[
        GOOD,
        ("b", Rows("\"machine\":\"here\"", "\"machine\":\"there\"")),
    ]),
    usage(
        "one file of rows",
        "minflt compare a",
        &["give a second file", "--benchstat"],
    )
    .given(&[GOOD]),
    usage(
        "two files for benchstat",
        "minflt compare a b --benchstat",
        &["--benchstat", "of one file"],
    )
    .given(&[GOOD, ("b", Rows("here", "here"))]),
];
