//! The machines that come with the program, and how a machine is found by name or path.

use super::{FITS, Fit, MachineFile, MachineFileError, check::line_of};
use std::fs::File;
use std::io::Read;
use std::path::Path;

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$((
            $name,
            include_str!(concat!("../../../../data/machines/", $name, ".toml")),
        )),+]
    };
}

/// The machines that come with the program, by age: name and text of each file.
pub const SHIPPED: &[(&str, &str)] = shipped![
    "altix32",
    "altix512",
    "opteron48",
    "wsm-ex8",
    "x86-4n32",
    "ivb-ep40",
    "ivb-ex120",
    "hsw-ex96",
    "power8-80",
    "power8-752",
    "kvm16",
    "icx-vm48",
    "milan-vm48",
    "skx448",
    "rome256",
    "genoa384",
    "spr224",
    "next1024",
    "next2048",
    "explorer",
];

/// A machine file is some 6 KiB; nothing larger is one.
const MOST_BYTES: u64 = 1 << 20;

impl MachineFile {
    /// A shipped machine, with the numbers that were fitted.
    ///
    /// # Errors
    /// When there is none of that name; the message lists those there are.
    pub fn shipped(name: &str) -> Result<Self, MachineFileError> {
        let mut machine = Self::unfitted(name)?;
        if let Some((_, text)) = FITS.iter().find(|(known, _)| *known == name) {
            let file = format!("data/fit/{name}.toml");
            Fit::parse(&file, text)?.apply(&file, &mut machine)?;
        }
        Ok(machine)
    }

    /// A shipped machine as its file says, before any fit.
    ///
    /// # Errors
    /// As [`MachineFile::shipped`].
    pub fn unfitted(name: &str) -> Result<Self, MachineFileError> {
        match SHIPPED.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::parse(&format!("{name}.toml"), text),
            None => {
                let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                Err(unreadable(
                    name,
                    format!("neither a known machine nor a file; machines are {names}"),
                ))
            }
        }
    }

    /// The machine in the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, as [`MachineFile::parse`], or when it has a shipped machine's name
    /// and other numbers: results are labelled by the name.
    pub fn read(path: &Path) -> Result<Self, MachineFileError> {
        let file = path.display().to_string();
        let text = text_of(path).map_err(|what| unreadable(&file, what))?;
        let machine = Self::parse(&file, &text)?;
        let name = &machine.name;
        match Self::unfitted(name) {
            Ok(shipped) if shipped == machine => Self::shipped(name),
            Ok(_) => Err(MachineFileError {
                line: Some(line_of(&text, ("", "name"))),
                what: format!(
                    "name = {name:?} is the name of a shipped machine with different numbers; results \
                     are labelled by name: rename this one"
                ),
                file,
            }),
            Err(_) => Ok(machine),
        }
    }

    /// The shipped machine of this name, or else the machine in the file at this path.
    ///
    /// # Errors
    /// As [`MachineFile::shipped`] for what can only be a name, else as [`MachineFile::read`].
    pub fn find(name_or_path: &str) -> Result<Self, MachineFileError> {
        let path = Path::new(name_or_path);
        let is_name = !name_or_path.contains(['/', '.']) && !path.exists();
        if is_name || SHIPPED.iter().any(|(name, _)| *name == name_or_path) {
            Self::shipped(name_or_path)
        } else {
            Self::read(path)
        }
    }
}

fn unreadable(file: &str, what: String) -> MachineFileError {
    MachineFileError {
        file: file.to_owned(),
        line: None,
        what,
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 > MOST_BYTES => Err(format!(
            "larger than {MOST_BYTES} bytes, the limit for machine files"
        )),
        Ok(_) => Ok(text),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}
