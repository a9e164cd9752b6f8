//! Reading machine files.

use crate::machine_file::{MachineFile, SHIPPED, Source};

#[test]
fn every_shipped_machine_is_readable_and_called_like_its_file() {
    for (name, _) in SHIPPED {
        let machine = MachineFile::shipped(name).unwrap();
        assert_eq!(machine.name, *name);
    }
    let altix = MachineFile::shipped("altix32").unwrap();
    let guesses = altix
        .numbers()
        .filter(|(_, _, n)| n.src == Source::Guess)
        .count();
    assert!(guesses > 10, "{guesses}");
    let missing = MachineFile::shipped("cray").unwrap_err().to_string();
    assert!(missing.contains("altix32"), "{missing}");
}

#[test]
fn what_is_wrong_is_named_with_file_and_key() {
    let text = SHIPPED[2].1;
    let error = |from: &str, to: &str| {
        assert!(text.contains(from));
        MachineFile::parse("mine.toml", &text.replacen(from, to, 1))
            .unwrap_err()
            .to_string()
    };
    for (from, to, key) in [
        ("die = { value = 10", "die = { value = \"ten\"", "die"),
        ("die = { value = 10", "die = { value = -1", "ns.die = -1"),
        ("die = { value = 10", "dye = { value = 10", "dye"),
        (
            "line_bytes = { value = 64",
            "line_bytes = { value = 65",
            "shape.line_bytes = 65",
        ),
        ("wake = {", "# wake = {", "wake"),
        ("src = \"guess\"", "src = \"hearsay\"", "hearsay"),
    ] {
        let error = error(from, to);
        assert!(
            error.starts_with("mine.toml: ") && error.contains(key),
            "{error}"
        );
    }
}
