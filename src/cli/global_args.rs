//! The options of every command.

use std::path::PathBuf;

use super::common_args::GLOBAL;

/// Options of every command.
#[derive(Debug, Clone, clap::Args)]
pub struct Global {
    /// The repository, or a folder in it; default: KONVERGE_REPO, or else the current folder
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, global = true, help_heading = GLOBAL)]
    pub repo: Option<PathBuf>,
    /// When to use color
    #[arg(long, value_name = "WHEN", global = true, help_heading = GLOBAL, value_enum, default_value_t = ColorMode::Auto)]
    pub color: ColorMode,
    /// Print only results, warnings and errors
    #[arg(long, short, global = true, help_heading = GLOBAL)]
    pub quiet: bool,
    /// Log to stderr what is done (KONVERGE_LOG takes filters such as `konverge=debug`)
    #[arg(long, short, global = true, help_heading = GLOBAL, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// The form of what is written to stderr; default: KONVERGE_LOG_FORMAT, or else text
    #[arg(long, value_name = "FORMAT", global = true, help_heading = GLOBAL, value_enum)]
    pub log_format: Option<LogFormat>,
}

/// The form of what is written to stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object on each line: time, level, stack, message
    Json,
}

/// When to use color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorMode {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
