//! The protocol on a worker's pipes: frames with the core's own protobuf messages.
//!
//! A request is `u32` (big endian, the length of the rest), `u16` (the length of the method's name), name,
//! message. An answer is `u32`, status, message. The messages are those of the core's `spec.proto` with the
//! fields that Konverge uses. Their numbers are from the descriptor in `kcl_lib` 0.13.2 and are the same
//! since 0.9, where a message has the field at all.

use prost::Message;

/// The maximum size of an answer; a Spec of a thousand objects has about 3 MB.
pub const MAX_ANSWER: usize = 256 << 20;

/// The first byte of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerStatus {
    /// The message follows.
    Done,
    /// The error text of the core follows.
    Refused,
    /// The core panicked; its message follows.
    Panicked,
}

impl WorkerStatus {
    /// Parses the byte.
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
    /// The name used in imports.
    #[prost(string, tag = "1")]
    pub pkg_name: String,
    /// The folder of the package.
    #[prost(string, tag = "2")]
    pub pkg_path: String,
}

/// `-D name=value`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Argument {
    /// Name of the option.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The value, which the core parses as JSON if it is JSON.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `KclService.ExecProgram`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ExecProgramArgs {
    /// The base of relative entries.
    #[prost(string, tag = "1")]
    pub work_dir: String,
    /// The entries, in order.
    #[prost(string, repeated, tag = "2")]
    pub k_filename_list: Vec<String>,
    /// The options that `option()` reads.
    #[prost(message, repeated, tag = "4")]
    pub args: Vec<Argument>,
    /// Values that replace attributes, as `path=value`.
    #[prost(string, repeated, tag = "5")]
    pub overrides: Vec<String>,
    /// Requests only JSON.
    #[prost(bool, tag = "6")]
    pub disable_yaml_result: bool,
    /// Checks 32-bit integers and floats.
    #[prost(bool, tag = "8")]
    pub strict_range_check: bool,
    /// Leaves out attributes that are `None`.
    #[prost(bool, tag = "9")]
    pub disable_none: bool,
    /// External packages.
    #[prost(message, repeated, tag = "13")]
    pub external_pkgs: Vec<ExternalPkg>,
    /// Prints the schema of each instance with its package.
    #[prost(bool, tag = "14")]
    pub include_schema_type_path: bool,
    /// The paths of the parts to print.
    #[prost(string, repeated, tag = "17")]
    pub path_selector: Vec<String>,
    /// Uses the evaluator without compilation passes.
    #[prost(bool, tag = "18")]
    pub fast_eval: bool,
}

/// The answer of `KclService.ExecProgram`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ExecProgramResult {
    /// JSON documents, one per line.
    #[prost(string, tag = "1")]
    pub json_result: String,
    /// Output of `print`.
    #[prost(string, tag = "3")]
    pub log_message: String,
    /// An error during evaluation; empty if there was none.
    #[prost(string, tag = "4")]
    pub err_message: String,
}

/// `KclService.FormatCode`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FormatCodeArgs {
    /// The text of a file.
    #[prost(string, tag = "1")]
    pub source: String,
}

/// The answer of `KclService.FormatCode`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FormatCodeResult {
    /// The formatted text.
    #[prost(bytes = "vec", tag = "1")]
    pub formatted: Vec<u8>,
}

/// `KclService.ValidateCode`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ValidateCodeArgs {
    /// The file with the data.
    #[prost(string, tag = "1")]
    pub datafile: String,
    /// The program that defines the schema: a file, or a folder with a package.
    #[prost(string, tag = "3")]
    pub file: String,
    /// The name of the schema.
    #[prost(string, tag = "5")]
    pub schema: String,
    /// The variable of the program that gets the data.
    #[prost(string, tag = "6")]
    pub attribute_name: String,
    /// `json` or `yaml`.
    #[prost(string, tag = "7")]
    pub format: String,
    /// External packages. Cores before 0.10 do not know the field.
    #[prost(message, repeated, tag = "8")]
    pub external_pkgs: Vec<ExternalPkg>,
}

/// The answer of `KclService.ValidateCode`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ValidateCodeResult {
    /// True if the data fits its schema.
    #[prost(bool, tag = "1")]
    pub success: bool,
    /// Errors by which the data does not match, in the form of a compilation's errors.
    #[prost(string, tag = "2")]
    pub err_message: String,
}

/// `KclService.ParseFile`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ParseFileArgs {
    /// The path of the file, for messages; it need not exist.
    #[prost(string, tag = "1")]
    pub path: String,
    /// The text of the file.
    #[prost(string, tag = "2")]
    pub source: String,
}

/// The answer of `KclService.ParseFile`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ParseFileResult {
    /// The syntax tree as JSON.
    #[prost(string, tag = "1")]
    pub ast_json: String,
    /// Messages of the parser.
    #[prost(message, repeated, tag = "3")]
    pub errors: Vec<ParseProblem>,
}

/// An error of the parser, or a suggestion.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ParseProblem {
    /// `error`, `warning` or `suggestions`.
    #[prost(string, tag = "1")]
    pub level: String,
    /// `Error(InvalidSyntax)` and the like.
    #[prost(string, tag = "2")]
    pub code: String,
    /// The words, each with its place.
    #[prost(message, repeated, tag = "3")]
    pub messages: Vec<ParseMessage>,
}

/// A message of the parser.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ParseMessage {
    /// The words.
    #[prost(string, tag = "1")]
    pub msg: String,
    /// The place.
    #[prost(message, optional, tag = "2")]
    pub pos: Option<ParsePosition>,
}

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ParsePosition {
    /// The line, from 1.
    #[prost(int64, tag = "1")]
    pub line: i64,
    /// The column, from 0.
    #[prost(int64, tag = "2")]
    pub column: i64,
}

#[cfg(test)]
mod tests {
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
