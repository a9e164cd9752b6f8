//! Linux's error numbers.

use core::fmt;

macro_rules! errnos {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal),+ $(,)?) => {
        impl Errno {
            $($(#[doc = $doc])+ pub const $name: Self = Self($number);)+
        }

        impl core::error::Error for Errno {}

        impl fmt::Display for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)+
                    Self(number) => write!(f, "errno {number}"),
                }
            }
        }
    };
}

/// A Linux error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

errnos! {
    /// Not permitted.
    EPERM = 1,
    /// No such file or directory.
    ENOENT = 2,
    /// Input or output error; a page that is where it should not be.
    EIO = 5,
    /// Bad file number, or one that is not for what was asked.
    EBADF = 9,
    /// Try again.
    EAGAIN = 11,
    /// Out of memory.
    ENOMEM = 12,
    /// Permission denied.
    EACCES = 13,
    /// Bad address.
    EFAULT = 14,
    /// Device or resource busy.
    EBUSY = 16,
    /// File exists.
    EEXIST = 17,
    /// No such device.
    ENODEV = 19,
    /// Invalid argument.
    EINVAL = 22,
    /// File too large.
    EFBIG = 27,
    /// No space left on the device.
    ENOSPC = 28,
    /// Value too large.
    EOVERFLOW = 75,
}
