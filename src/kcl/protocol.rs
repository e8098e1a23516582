//! What goes over a worker's pipes: frames, and in them the core's own protobuf messages.
//!
//! A request is `u32` (big endian, what follows) `u16` (the method's name) name message; an answer is `u32` status
//! message. The messages are those of the core's `spec.proto` with the fields that Konverge uses; the numbers were
//! read from the descriptor in `kcl_lib` 0.13.2 and are the same since 0.9, where a message has the field at all.

use prost::Message;

/// The largest answer that is read; a Spec of a thousand objects has about 3 MB.
pub const MAX_ANSWER: usize = 256 << 20;

/// The first byte of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerStatus {
    /// The message follows.
    Done,
    /// The core's error text follows.
    Refused,
    /// The core panicked; what it said follows.
    Panicked,
}

impl WorkerStatus {
    /// Reads the byte.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'+' => Some(Self::Done),
            b'-' => Some(Self::Refused),
            b'!' => Some(Self::Panicked),
            _ => None,
        }
    }
}

/// A whole request frame.
pub fn request(method: &str, message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let length = 2 + method.len() + body.len();
    let mut frame = Vec::with_capacity(4 + length);
    frame.extend((length as u32).to_be_bytes());
    frame.extend((method.len() as u16).to_be_bytes());
    frame.extend(method.as_bytes());
    frame.extend(body);
    frame
}

/// `-E name=path`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ExternalPkg {
    /// The name by which it is imported.
    #[prost(string, tag = "1")]
    pub pkg_name: String,
    /// Its folder.
    #[prost(string, tag = "2")]
    pub pkg_path: String,
}

/// `-D name=value`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Argument {
    /// The option's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value, read by the core as JSON where it is JSON.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `KclService.ExecProgram`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ExecProgramArgs {
    /// Relative entries start here.
    #[prost(string, tag = "1")]
    pub work_dir: String,
    /// Entries in order.
    #[prost(string, repeated, tag = "2")]
    pub k_filename_list: Vec<String>,
    /// Options.
    #[prost(message, repeated, tag = "4")]
    pub args: Vec<Argument>,
    /// Overrides.
    #[prost(string, repeated, tag = "5")]
    pub overrides: Vec<String>,
    /// Asks for JSON alone.
    #[prost(bool, tag = "6")]
    pub disable_yaml_result: bool,
    /// 32-bit integers and floats are checked.
    #[prost(bool, tag = "8")]
    pub strict_range_check: bool,
    /// Attributes that are `None` are left out.
    #[prost(bool, tag = "9")]
    pub disable_none: bool,
    /// Packages from elsewhere.
    #[prost(message, repeated, tag = "13")]
    pub external_pkgs: Vec<ExternalPkg>,
    /// Which part to print.
    #[prost(string, repeated, tag = "17")]
    pub path_selector: Vec<String>,
    /// The evaluator without compilation passes.
    #[prost(bool, tag = "18")]
    pub fast_eval: bool,
}

/// The answer of `KclService.ExecProgram`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ExecProgramResult {
    /// JSON documents, one to a line.
    #[prost(string, tag = "1")]
    pub json_result: String,
    /// What `print` wrote.
    #[prost(string, tag = "3")]
    pub log_message: String,
    /// An error at evaluation, empty if there was none.
    #[prost(string, tag = "4")]
    pub err_message: String,
}

/// `KclService.FormatCode`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FormatCodeArgs {
    /// A file's text.
    #[prost(string, tag = "1")]
    pub source: String,
}

/// The answer of `KclService.FormatCode`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FormatCodeResult {
    /// The text as it should be.
    #[prost(bytes = "vec", tag = "1")]
    pub formatted: Vec<u8>,
}

/// `KclService.LintPath`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LintPathArgs {
    /// Files.
    #[prost(string, repeated, tag = "1")]
    pub paths: Vec<String>,
}

/// The answer of `KclService.LintPath`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LintPathResult {
    /// Remarks, without a place.
    #[prost(string, repeated, tag = "1")]
    pub results: Vec<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_frame_has_its_lengths() {
        let args = ExecProgramArgs {
            work_dir: "w".to_owned(),
            ..ExecProgramArgs::default()
        };
        let frame = request("S.M", &args);
        assert_eq!(
            frame,
            [&[0, 0, 0, 8, 0, 3][..], b"S.M", &[10, 1, b'w'][..]].concat()
        );
    }

    #[test]
    fn unknown_fields_of_a_newer_core_are_skipped() {
        let bytes = [10, 2, b'{', b'}', 0x2a, 1, b'x'];
        let result = ExecProgramResult::decode(&bytes[..]).unwrap();
        assert_eq!(result.json_result, "{}");
    }
}
