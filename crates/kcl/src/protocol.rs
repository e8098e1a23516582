//! The protocol on a worker's pipes: frames with the core's own protobuf messages.
//!
//! A request is `u32` (big endian, the length of the rest), `u16` (the length of the method's name), name,
//! message. A response is `u32`, status, message. The messages are those of the core's `spec.proto`, with the
//! fields that Konverge uses. The field numbers are from the descriptor in `kcl_lib` 0.13.2. They are the same
//! in every version since 0.9 that has the field.

use prost::Message;

/// The maximum size of a response in bytes. A Spec of a thousand objects has about 3 MB.
pub const MAX_ANSWER: usize = 256 << 20;

/// The status of a response: its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerStatus {
    /// The call succeeded; its result follows.
    Done,
    /// The call failed; the core's error text follows.
    Refused,
    /// The core panicked; the panic message follows.
    Panicked,
}

impl WorkerStatus {
    /// Parses the first byte of a response.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'+' => Some(Self::Done),
            b'-' => Some(Self::Refused),
            b'!' => Some(Self::Panicked),
            _ => None,
        }
    }
}

/// Formats a whole request frame.
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

/// An external package (`-E name=path`).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ExternalPkg {
    /// The name in imports.
    #[prost(string, tag = "1")]
    pub pkg_name: String,
    /// The folder of the package.
    #[prost(string, tag = "2")]
    pub pkg_path: String,
}

/// An option (`-D name=value`).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Argument {
    /// Name of the option.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The value. The core parses it as JSON if it is valid JSON.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// The arguments of `KclService.ExecProgram`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ExecProgramArgs {
    /// The folder to which relative paths of KCL files refer.
    #[prost(string, tag = "1")]
    pub work_dir: String,
    /// The paths of the KCL files, in the order in which they are loaded.
    #[prost(string, repeated, tag = "2")]
    pub k_filename_list: Vec<String>,
    /// The options that `option()` reads.
    #[prost(message, repeated, tag = "4")]
    pub args: Vec<Argument>,
    /// Values that replace attributes, as `path=value`.
    #[prost(string, repeated, tag = "5")]
    pub overrides: Vec<String>,
    /// True to get the result as JSON only.
    #[prost(bool, tag = "6")]
    pub disable_yaml_result: bool,
    /// True to check the ranges of 32-bit integers and floats.
    #[prost(bool, tag = "8")]
    pub strict_range_check: bool,
    /// True to omit attributes that are `None`.
    #[prost(bool, tag = "9")]
    pub disable_none: bool,
    /// The external packages.
    #[prost(message, repeated, tag = "13")]
    pub external_pkgs: Vec<ExternalPkg>,
    /// True to add the schema of each instance, with its package.
    #[prost(bool, tag = "14")]
    pub include_schema_type_path: bool,
    /// The paths of the parts to print.
    #[prost(string, repeated, tag = "17")]
    pub path_selector: Vec<String>,
    /// True to evaluate without the compilation passes.
    #[prost(bool, tag = "18")]
    pub fast_eval: bool,
}

/// The response of `KclService.ExecProgram`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ExecProgramResult {
    /// The result as JSON documents, one per line.
    #[prost(string, tag = "1")]
    pub json_result: String,
    /// The output of `print`.
    #[prost(string, tag = "3")]
    pub log_message: String,
    /// The error during evaluation; empty if there was none.
    #[prost(string, tag = "4")]
    pub err_message: String,
}

/// The arguments of `KclService.FormatCode`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FormatCodeArgs {
    /// The text of the file.
    #[prost(string, tag = "1")]
    pub source: String,
}

/// The response of `KclService.FormatCode`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FormatCodeResult {
    /// The formatted text.
    #[prost(bytes = "vec", tag = "1")]
    pub formatted: Vec<u8>,
}

/// The arguments of `KclService.ValidateCode`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ValidateCodeArgs {
    /// The path of the file with the data.
    #[prost(string, tag = "1")]
    pub datafile: String,
    /// The path of the program with the schema: a file, or the folder of a package.
    #[prost(string, tag = "3")]
    pub file: String,
    /// The name of the schema.
    #[prost(string, tag = "5")]
    pub schema: String,
    /// The variable of the program that gets the data.
    #[prost(string, tag = "6")]
    pub attribute_name: String,
    /// The format of the data: `json` or `yaml`.
    #[prost(string, tag = "7")]
    pub format: String,
    /// The external packages. Cores before 0.10 do not have this field.
    #[prost(message, repeated, tag = "8")]
    pub external_pkgs: Vec<ExternalPkg>,
}

/// The response of `KclService.ValidateCode`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ValidateCodeResult {
    /// True if the data matches the schema.
    #[prost(bool, tag = "1")]
    pub success: bool,
    /// The errors of data that does not match, in the format of compilation errors.
    #[prost(string, tag = "2")]
    pub err_message: String,
}

/// The arguments of `KclService.ParseFile`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ParseFileArgs {
    /// The path of the file, for messages. The file need not exist.
    #[prost(string, tag = "1")]
    pub path: String,
    /// The text of the file.
    #[prost(string, tag = "2")]
    pub source: String,
}

/// The response of `KclService.ParseFile`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ParseFileResult {
    /// The syntax tree as JSON.
    #[prost(string, tag = "1")]
    pub ast_json: String,
    /// The errors and suggestions of the parser.
    #[prost(message, repeated, tag = "3")]
    pub errors: Vec<ParseProblem>,
}

/// An error of the parser, or a suggestion.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ParseProblem {
    /// The level: `error`, `warning` or `suggestions`.
    #[prost(string, tag = "1")]
    pub level: String,
    /// The code, such as `Error(InvalidSyntax)`.
    #[prost(string, tag = "2")]
    pub code: String,
    /// The messages, each with its position.
    #[prost(message, repeated, tag = "3")]
    pub messages: Vec<ParseMessage>,
}

/// A message of the parser, with its position.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ParseMessage {
    /// The text of the message.
    #[prost(string, tag = "1")]
    pub msg: String,
    /// The position in the file.
    #[prost(message, optional, tag = "2")]
    pub pos: Option<ParsePosition>,
}

/// A position in a file.
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
