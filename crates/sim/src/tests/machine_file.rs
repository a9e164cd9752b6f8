//! Reading machine files.

use crate::machine_file::{MachineFile, SHIPPED, Source};
use std::path::PathBuf;

#[test]
fn every_shipped_machine_is_readable_and_called_like_its_file() {
    for (name, _) in SHIPPED {
        let machine = MachineFile::shipped(name).unwrap();
        assert_eq!(machine.name, *name);
        let counts = Source::ALL.map(|source| machine.count(source));
        assert_eq!(
            counts.iter().sum::<usize>(),
            machine.numbers().count(),
            "{name}"
        );
        assert!(machine.count(Source::Guess) > 10, "{name}: {counts:?}");
    }
    let missing = MachineFile::shipped("cray").unwrap_err().to_string();
    assert!(missing.contains("altix32"), "{missing}");
}

#[test]
fn every_file_of_the_folder_is_shipped() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/machines");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort_unstable();
    let mut shipped: Vec<_> = SHIPPED
        .iter()
        .map(|(name, _)| format!("{name}.toml"))
        .collect();
    shipped.sort_unstable();
    assert_eq!(files, shipped);
}

#[test]
fn shapes_that_the_sources_state() {
    for (name, cpus, page, nodes) in [
        ("altix512", 512, 16384, 256),
        ("opteron48", 48, 4096, 8),
        ("wsm-ex8", 160, 4096, 8),
        ("x86-4n32", 32, 4096, 4),
        ("ivb-ep40", 40, 4096, 2),
        ("ivb-ex120", 120, 4096, 4),
        ("hsw-ex96", 96, 4096, 4),
        ("power8-80", 80, 65536, 1),
        ("power8-752", 752, 65536, 16),
        ("icx-vm48", 48, 4096, 1),
        ("milan-vm48", 48, 4096, 1),
        ("skx448", 448, 4096, 8),
        ("rome256", 256, 4096, 2),
        ("genoa384", 384, 4096, 2),
        ("spr224", 224, 4096, 2),
        ("next1024", 1024, 4096, 2),
        ("next2048", 2048, 4096, 4),
    ] {
        let machine = MachineFile::shipped(name).unwrap();
        let per_node = machine.shape.cpus_per_node.value as u32;
        let found = (
            machine.cpus(),
            machine.shape.page_bytes.value as u32,
            machine.cpus().div_ceil(per_node),
        );
        assert_eq!(found, (cpus, page, nodes), "{name}");
    }
}

/// The shipped file `name` with `from` replaced by `to`, and what is said about it.
fn error(name: &str, from: &str, to: &str) -> String {
    let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name).unwrap();
    assert!(text.contains(from), "{name} has no {from}");
    MachineFile::parse("mine.toml", &text.replacen(from, to, 1))
        .unwrap_err()
        .to_string()
}

#[test]
fn what_is_malformed_is_named_with_line_and_remedy() {
    for (from, to, said) in [
        (
            "die = { value = 10",
            "die = { value = \"ten\"",
            "mine.toml:26: die: invalid type: string \"ten\", expected f64; expected `key = { value = 1, ",
        ),
        (
            "die = { value = 10, src = \"guess\", cite = \"makes schedules easy to read\" }",
            "die = 10",
            "mine.toml:26: die: invalid type",
        ),
        (
            "die = { value = 10",
            "dye = { value = 10",
            "mine.toml:26: dye: unknown field `dye`, expected one of `hit`,",
        ),
        (
            "\n[ns]",
            "colour = 1\n[ns]",
            "mine.toml:21: colour: unknown field `colour`, expected one of `cpus`,",
        ),
        (
            "arbitration = \"fifo\"",
            "arbitration = \"unfair\"",
            "mine.toml:6: arbitration: unknown variant `unfair`, expected one of `fifo`, `near-first`, `random`; use one",
        ),
        (
            "src = \"guess\"",
            "src = \"hearsay\"",
            "mine.toml:9: cpus: unknown variant `hearsay`, expected one of `measured`, `posting`, `guess`",
        ),
        (
            "src = \"guess\", ",
            "",
            "mine.toml:9: cpus: missing field `src`; add it",
        ),
        (
            "wake = {",
            "# wake = {",
            "missing field `wake`; add it: every parameter is required",
        ),
        (
            "[bytes_per_us]",
            "",
            "mine.toml:57: clear_far: unknown field `clear_far`",
        ),
        (
            "die = { value = 10",
            "die = { value == 10",
            "mine.toml:26: die: ",
        ),
        ("far1 = {", "die = {", "mine.toml:28: die: duplicate key"),
    ] {
        let error = error("explorer", from, to);
        assert!(error.starts_with("mine.toml:"), "{error}");
        assert!(error.contains(said), "{error}\nlacks\n{said}");
        assert!(!error.contains('\n'), "{error}");
        assert!(error.contains("; "), "no remedy: {error}");
    }
}

/// Of `explorer`: what is replaced, by what, and what is said.
const OUT_OF_RANGE: &[(&str, &str, &str)] = &[
    (
        "die = { value = 10",
        "die = { value = -1",
        "mine.toml:26: ns.die = -1: expected a value from 0.001 to 1000000000",
    ),
    (
        "hit = { value = 1",
        "hit = { value = 0",
        "mine.toml:23: ns.hit = 0: expected a value from 0.001 to",
    ),
    (
        "hit = { value = 1",
        "hit = { value = nan",
        "mine.toml:23: ns.hit = NaN: expected",
    ),
    (
        "hit = { value = 1",
        "hit = { value = inf",
        "mine.toml:23: ns.hit = inf: expected",
    ),
    (
        "serve = { value = 0",
        "serve = { value = -0.5",
        "mine.toml:33: ns.serve = -0.5: expected a value from 0 to",
    ),
    (
        "cpus = { value = 16",
        "cpus = { value = 0",
        "mine.toml:9: shape.cpus = 0: expected a value from 1 to 2048",
    ),
    (
        "cpus = { value = 16",
        "cpus = { value = 2049",
        "mine.toml:9: shape.cpus = 2049: expected a value from 1 to 2048",
    ),
    (
        "cpus = { value = 16",
        "cpus = { value = 1.5",
        "mine.toml:9: shape.cpus = 1.5: expected an integer",
    ),
    (
        "cpus_per_core = { value = 1,",
        "cpus_per_core = { value = 4294967296,",
        "mine.toml:10: shape.cpus_per_core = 4294967296: expected",
    ),
    (
        "line_bytes = { value = 64",
        "line_bytes = { value = 65",
        "mine.toml:14: shape.line_bytes = 65: expected a power of two",
    ),
    (
        "page_bytes = { value = 4096",
        "page_bytes = { value = 5000",
        "mine.toml:15: shape.page_bytes = 5000: expected a power of two",
    ),
    (
        "page_bytes = { value = 4096",
        "page_bytes = { value = 8192",
        "mine.toml:15: shape.page_bytes = 8192: no page-table format has pages of this size; expected 4096, 16384 or 65536",
    ),
    (
        "permille = { value = 1000",
        "permille = { value = 1001",
        "mine.toml:18: shape.shared_core_permille = 1001: expected a value from 1 to 1000",
    ),
    (
        "node = { value = 1000000",
        "node = { value = 0",
        "mine.toml:59: bytes_per_us.node = 0: expected a value from 1 to",
    ),
    (
        "cite = \"makes schedules easy to read\"",
        "cite = \" \"",
        "mine.toml:9: shape.cpus: `cite` is empty: give the source",
    ),
    (
        "name = \"explorer\"",
        "name = \"my machine\"",
        "mine.toml:4: name = \"my machine\": use only letters, digits, - and _",
    ),
    (
        "title = \"no real machine: small, with unit costs, for exploring schedules\"",
        "title = \"\"",
        "mine.toml:5: title is empty",
    ),
];

#[test]
fn what_is_out_of_range_is_named_with_line_and_remedy() {
    for (from, to, said) in OUT_OF_RANGE {
        let error = error("explorer", from, to);
        assert!(error.contains(said), "{error}\nlacks\n{said}");
    }
}

/// What is changed, into what, and what is said of it.
const CONTRADICTIONS: &[(&str, &str, &str)] = &[
    (
        "cpus_per_node = { value = 2",
        "cpus_per_node = { value = 3",
        "mine.toml:14: shape.cpus_per_node = 3 does not divide cpus = 32 (line 10); use a divisor, or add `uneven = ",
    ),
    (
        "cpus_per_group = { value = 16",
        "cpus_per_group = { value = 64",
        "mine.toml:13: shape.cpus_per_group = 64 exceeds cpus = 32 (line 10); expected at most 32",
    ),
    (
        "cpus_per_core = { value = 1",
        "cpus_per_core = { value = 4",
        "mine.toml:12: shape.cpus_per_die = 2 is not a multiple of cpus_per_core = 4 (line 11)",
    ),
    (
        "title = ",
        "uneven = \"\"\ntitle = ",
        "mine.toml:6: uneven is empty",
    ),
    (
        "rmw_hit = { value = 13",
        "rmw_hit = { value = 0.5",
        "mine.toml:25: ns.rmw_hit = 0.5 is below hit = 0.7 (line 24): ",
    ),
    (
        "far1 = { value = 450",
        "far1 = { value = 100",
        "mine.toml:29: ns.far1 = 100 is below die = 200 (line 27): a more distant access cannot cost less; raise the first or lower the second",
    ),
    (
        "far2 = { value = 600",
        "far2 = { value = 400",
        "mine.toml:30: ns.far2 = 400 is below far1 = 450 (line 29)",
    ),
    (
        "dram_far = { value = 350",
        "dram_far = { value = 100",
        "mine.toml:32: ns.dram_far = 100 is below dram_local = 140 (line 31)",
    ),
    (
        "llc = { value = 200",
        "llc = { value = 201",
        "mine.toml:27: ns.die = 200 is below llc = 201 (line 28): a transfer from the owner includes a lookup in the die's last-level cache",
    ),
    (
        "arbitration = \"near-first\"",
        "arbitration = \"random\"",
        "mine.toml:20: shape.near_first_permille = 300 needs arbitration = \"near-first\" (line 7); set that, or 0 here",
    ),
    (
        "near_first_permille = { value = 300",
        "near_first_permille = { value = 0",
        "mine.toml:20: shape.near_first_permille = 0 with arbitration = \"near-first\" (line 7): set it from 1 to 999 (how often the nearest CPU goes first), or arbitration = \"fifo\"",
    ),
    (
        "clear_local = { value = 1311",
        "clear_local = { value = 900",
        "bytes_per_us.clear_local = 900 is below clear_far = 964",
    ),
    (
        "node = { value = 3200",
        "node = { value = 1000",
        "bytes_per_us.node = 1000 is below clear_local = 1311",
    ),
];

#[test]
fn what_contradicts_itself_is_named_with_both_lines_and_remedy() {
    for (from, to, said) in CONTRADICTIONS {
        let error = error("altix32", from, to);
        assert!(error.contains(said), "{error}\nlacks\n{said}");
    }
    // Nodes of 8 CPUs on dies of 6: neither holds whole ones of the other.
    let error = error(
        "opteron48",
        "cpus_per_node = { value = 6",
        "cpus_per_node = { value = 8",
    );
    assert!(
        error.contains("shape.cpus_per_node = 8 is not a multiple of cpus_per_die = 6"),
        "{error}"
    );
}

#[test]
fn a_machine_may_say_why_its_last_chip_is_smaller() {
    assert!(MachineFile::shipped("power8-752").unwrap().uneven.is_some());
    let error = error("power8-752", "uneven = ", "# uneven = ");
    assert!(
        error.contains("cpus_per_die = 48 does not divide cpus = 752"),
        "{error}"
    );
}

/// A file in the temporary folder, removed when dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, text: &[u8]) -> Self {
        let name = format!("minflt-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn find(&self) -> Result<MachineFile, String> {
        MachineFile::find(&self.0.display().to_string()).map_err(|error| error.to_string())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_machine_is_found_by_name_or_path() {
    let (name, text) = SHIPPED[0];
    assert_eq!(MachineFile::find(name), MachineFile::shipped(name));
    let own = text.replace("name = \"altix32\"", "name = \"mine\"");
    let file = Temporary::new("own.toml", own.as_bytes());
    assert_eq!(file.find().unwrap().name, "mine");
    let same = Temporary::new("same.toml", text.as_bytes());
    assert_eq!(same.find(), Ok(MachineFile::shipped(name).unwrap()));
}

#[test]
fn bandwidths_of_reading_are_for_machines_that_have_them() {
    let with = |near: u32, node: u32| {
        let number = |value| format!("{{ value = {value}, src = \"guess\", cite = \"c\" }}");
        let text = MachineFile::shipped("explorer").unwrap().to_text();
        let (near, node) = (number(near), number(node));
        let far = number(1);
        let reads = format!("\n[reads]\nnear = {near}\nfar = {far}\nnode = {node}\n");
        MachineFile::parse("mine.toml", &(text + &reads))
    };
    let mut machine = with(2, 3).unwrap();
    assert_eq!(machine.number_mut("reads.node").unwrap().value, 3.0);
    assert!(machine.to_text().contains("[reads]"));
    let error = with(4, 3).unwrap_err().to_string();
    assert!(
        error.contains("reads.node = 3 is below near = 4"),
        "{error}"
    );
    let mut none = MachineFile::shipped("explorer").unwrap();
    assert!(none.number_mut("reads.node").is_none());
}

#[test]
fn a_file_that_is_none_is_named() {
    let said = |name: &str, text: &[u8]| Temporary::new(name, text).find().unwrap_err();
    let (_, text) = SHIPPED[0];
    let changed = text.replace("value = 450", "value = 451");
    let error = said("changed.toml", changed.as_bytes());
    assert!(
        error.contains("changed.toml:5: name = \"altix32\" is the name of a shipped machine"),
        "{error}"
    );
    assert!(said("bytes.toml", b"\xff\xfe").contains("bytes.toml: cannot be read: "));
    assert!(said("empty.toml", b"").contains("empty.toml:1: missing field `name`"));
    assert!(said("long.toml", &vec![b'#'; (1 << 20) + 1]).contains("the limit for machine files"));
    let error = |word| MachineFile::find(word).unwrap_err().to_string();
    assert!(error("no/such.toml").starts_with("no/such.toml: cannot be read: "));
    assert!(
        error("cray")
            .starts_with("cray: neither a known machine nor a file; machines are altix32, ")
    );
}
