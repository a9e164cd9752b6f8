//! Links the kernel by `linker.ld` and builds the user programs that go into its image.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs of `../guest` that the kernel carries.
const PROGRAMS: [&str; 1] = ["smoke"];
/// The bare target of kernel and guest alike.
const TARGET: &str = "x86_64-unknown-none";

fn main() {
    // The target, the relocation model and the runner stand in `.cargo/config.toml`, which cargo
    // finds from its working directory.
    let os = variable("CARGO_CFG_TARGET_OS");
    assert_eq!(
        os, "none",
        "build the kernel from its own folder: cd kernel && cargo build"
    );

    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let script = here.join("linker.ld");
    println!("cargo::rerun-if-changed={}", script.display());
    println!("cargo::rustc-link-arg=-T{}", script.display());

    let guest = here.join("../guest");
    let target_dir = Path::new(&variable("OUT_DIR")).join("guest");
    for input in ["src", "Cargo.toml", "Cargo.lock", ".cargo/config.toml"] {
        println!("cargo::rerun-if-changed={}", guest.join(input).display());
    }
    build_guest(&guest, &target_dir);
    for program in PROGRAMS {
        let file = target_dir.join(TARGET).join("release").join(program);
        println!(
            "cargo::rustc-env=GUEST_{}={}",
            program.to_uppercase(),
            file.display()
        );
    }
}

/// Builds every guest program, with the guest's own settings and none of the kernel's.
fn build_guest(guest: &Path, target_dir: &Path) {
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(guest)
        .args(["build", "--release", "--locked", "--target", TARGET]);
    cargo.arg("--target-dir").arg(target_dir);
    // Cargo hands its own choices (flags, target, clippy's driver) to build scripts.
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let inherited = text.starts_with("CARGO_") && text != "CARGO_HOME"
            || text.starts_with("RUSTC_")
            || matches!(text, "RUSTFLAGS" | "RUSTC" | "TARGET" | "OUT_DIR");
        if inherited {
            cargo.env_remove(&name);
        }
    }
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building {} failed: {status}", guest.display()),
        Err(error) => panic!("running cargo in {} failed: {error}", guest.display()),
    }
}

/// A variable that cargo sets for every build script.
fn variable(name: &str) -> String {
    match env::var(name) {
        Ok(value) => value,
        Err(error) => panic!("{name}: {error}"),
    }
}
