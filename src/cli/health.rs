//! `konverge health`: the health of manifests, without a cluster.

use std::{io::Read as _, path::PathBuf};

use super::CliContext;
use crate::commands::health::{Health, Row, health};
use konverge_base::error::{ErrorKind, UserError};
use konverge_report::{escape::log, json};

/// Arguments of `konverge health`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A rule is DIR/<group>/<Kind>/health.lua (as in Argo CD's resource_customizations), health.cel.yaml or\n\
                  health.k; of the core group DIR/Pod/health.lua. `_` in a folder's name stands for any text.\n\n\
                  Examples:\n  konverge health deployment.yaml\n  kubectl get deploy,rs,pods -n shop -o yaml | konverge health -"
)]
pub struct Args {
    /// Files with Kubernetes objects in YAML or JSON, as a cluster returns them; `-` is standard input
    #[arg(value_name = "MANIFEST", required = true)]
    manifests: Vec<PathBuf>,
    /// Rules that take precedence over the built-in ones
    #[arg(long, value_name = "DIR")]
    rules: Option<PathBuf>,
    /// The output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Exit with 2 if anything is not ready
    #[arg(long)]
    exit_code: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// A table
    Text,
    /// An array of {"id","health","message"} in the order of the input
    Json,
}

/// Runs the command.
///
/// # Errors
/// A manifest or a rule cannot be read.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let manifests = read(&args.manifests, context)?;
    let rules = args.rules.as_ref().map(|rules| context.current_dir.join(rules));
    let rows = health(&context.run(), &manifests, rules.as_deref()).await?;
    match args.output {
        Output::Json => {
            context.print(&json::document(&rows));
        }
        Output::Text => context.print(&table(&rows, context.color())),
    }
    let all_ready = rows.iter().all(|row| row.health == Health::Ready);
    Ok(if args.exit_code && !all_ready { 2 } else { 0 })
}

fn read(paths: &[PathBuf], context: &CliContext) -> Result<Vec<(String, String)>, UserError> {
    let is_stdin = |path: &&PathBuf| path.as_os_str() == "-";
    if paths.iter().filter(is_stdin).count() > 1 {
        return Err(UserError::new(
            ErrorKind::Usage,
            "standard input (`-`) can be read once only",
        ));
    }
    let read = |path: &PathBuf| {
        let (name, text) = if is_stdin(&path) {
            let mut text = String::new();
            let read = std::io::stdin().lock().read_to_string(&mut text);
            ("<stdin>".to_owned(), read.map(|_| text))
        } else {
            let name = path.display().to_string();
            (name, std::fs::read_to_string(context.current_dir.join(path)))
        };
        let text = text.map_err(|error| {
            UserError::from_error(ErrorKind::Usage, error)
                .context(format!("{name} cannot be read"))
                .hint("name files with Kubernetes objects, or `-` for standard input")
        })?;
        Ok((name, text))
    };
    paths.iter().map(read).collect()
}

fn table(rows: &[Row], color: bool) -> String {
    let widest = rows.iter().map(|row| row.id.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let id = log(&row.id);
        let message = log(&row.message);
        let (on, off) = match row.health {
            _ if !color => ("", ""),
            Health::Ready => ("\x1b[32m", "\x1b[0m"),
            Health::Progressing => ("\x1b[33m", "\x1b[0m"),
            Health::Failed => ("\x1b[1;31m", "\x1b[0m"),
            Health::Suspended => ("\x1b[36m", "\x1b[0m"),
            Health::Unknown => ("\x1b[35m", "\x1b[0m"),
        };
        let line = format!("{on}{:<11}{off}  {id:<widest$}  {message}", row.health);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_harmless() {
        let row = |id: &str, health: Health, message: &str| Row {
            id: id.to_owned(),
            health,
            message: message.to_owned(),
        };
        let rows = [
            row("v1:Pod:shop:a", Health::Ready, ""),
            row(
                "apps/v1:Deployment:shop:web",
                Health::Failed,
                "pod a: \x1b[2Jgone\n::error::x",
            ),
        ];
        let text = table(&rows, false);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "ready        v1:Pod:shop:a");
        assert_eq!(
            lines[1],
            "failed       apps/v1:Deployment:shop:web  pod a: \\u{1b}[2Jgone\\u{a}::error::x"
        );
        assert_eq!(lines.len(), 2, "{text}");
        assert!(table(&rows, true).contains("\x1b[1;31mfailed     \x1b[0m"));
    }
}
