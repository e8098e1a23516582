use super::{CliContext, common_args::TextOrJson};
use crate::commands::doctor::{self, DoctorVerdict};
use konverge_base::error::UserError;
use konverge_report::escape::{json, log};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge doctor                   what is missing on this machine, and how to get it
  konverge doctor --module PATH     whether the binary of a Kusion module works behind Konverge's sandbox
  konverge doctor --output json     for a script")]
pub struct Args {
    /// Instead, call the binary of a Kusion module with a small request: its path, or its name in KUSION_MODULE_PATH
    #[arg(long, value_name = "PATH_OR_NAME")]
    pub module: Option<String>,
    /// The output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

/// Runs the command. Returns 0 if nothing that is needed is missing, otherwise 1.
///
/// # Errors
/// None.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let findings = match &args.module {
        Some(module) => doctor::check_module(&context.run(), module).await,
        None => doctor::run(&context.run()).await,
    };
    let missing = findings
        .iter()
        .any(|finding| finding.verdict == DoctorVerdict::Missing);
    if args.output == TextOrJson::Json {
        let document = serde_json::json!({"version": 1, "findings": findings});
        context.print(&(json(&format!("{document:#}")) + "\n"));
        return Ok(u8::from(missing));
    }
    for finding in &findings {
        let (word, color) = match finding.verdict {
            DoctorVerdict::Ok => ("ok     ", "\x1b[32m"),
            DoctorVerdict::Missing => ("MISSING", "\x1b[1;31m"),
            DoctorVerdict::Unused => ("unused ", "\x1b[2m"),
        };
        let (color, off) = if context.color() {
            (color, "\x1b[0m")
        } else {
            ("", "")
        };
        let mut text = format!("{color}{word}{off}  {}: {}\n", finding.what, log(&finding.says));
        for fix in &finding.fix {
            text.push_str(&format!("           {}\n", log(fix)));
        }
        context.print(&text);
    }
    Ok(u8::from(missing))
}
