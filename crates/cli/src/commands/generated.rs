//! `minflt completions` and `minflt man`: what clap's generators make of the command line.

use crate::args::{Completions, Man};
use crate::error::{Error, failed, usage};
use crate::files::replace;
use crate::help::command;
use crate::out::out;
use std::fs;
use std::path::Path;

const NAME: &str = "minflt";

/// Prints the completions for a shell.
pub(crate) fn completions(args: &Completions) -> Result<(), Error> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command(), NAME, &mut text);
    print(text)
}

/// Prints the program's manual page, or writes those of all commands.
pub(crate) fn man(args: &Man) -> Result<(), Error> {
    let Some(folder) = &args.folder else {
        return print(page(command())?);
    };
    // Everything is made before anything is written.
    let mut pages = vec![(format!("{NAME}.1"), page(command())?)];
    let mut whole = command();
    whole.build();
    for it in whole.get_subcommands().filter(|it| it.get_name() != "help") {
        let name = format!("{NAME}-{}", it.get_name());
        // A page's name is one word; what it shows to type is two.
        let one = it.clone().display_name(name.clone());
        pages.push((format!("{name}.1"), page(one)?));
    }
    write(folder, &pages)
}

fn write(folder: &Path, pages: &[(String, Vec<u8>)]) -> Result<(), Error> {
    let cannot = failed(format!("man: cannot write into {}", folder.display()));
    if folder.exists() && !folder.is_dir() {
        return Err(usage(format!(
            "man: {} is no directory; give one, such as ~/.local/share/man/man1",
            folder.display()
        )));
    }
    fs::create_dir_all(folder).map_err(|error| cannot(&error))?;
    for (name, text) in pages {
        replace(&folder.join(name), text).map_err(|error| cannot(&error))?;
    }
    Ok(())
}

fn page(command: clap::Command) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let source = concat!("minflt ", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command).source(source);
    man.render(&mut text)
        .map_err(|error| failed("man")(&error))?;
    Ok(text)
}

fn print(text: Vec<u8>) -> Result<(), Error> {
    let text = String::from_utf8(text).map_err(|error| failed("no UTF-8")(&error))?;
    out!("{text}");
    Ok(())
}
