//! `konverge check`: the checks of a Konfig repository.

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::{
    Context,
    common_args::{Revisions, Stacks},
};
use crate::{
    error::Failure,
    model::lint::Rule,
    ops::{
        Request,
        check::{self, Scope, workflow_commands},
        repository_root, selection,
    },
    report::{lint as report, json},
};

/// Arguments of `konverge check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    stacks: Stacks,
    #[command(flatten)]
    revisions: Revisions,
    /// Rewrite golden files (ci-test/stdout.golden.yaml) that differ
    #[arg(long, conflicts_with = "rev")]
    update: bool,
    /// Leave a check out; may be repeated
    #[arg(long, value_name = "CHECK", value_parser = checks())]
    skip: Vec<Rule>,
    /// How to print what was found
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

fn checks() -> impl TypedValueParser<Value = Rule> {
    PossibleValuesParser::new(Rule::ALL.map(Rule::name))
        .try_map(|name| Rule::of(&name).ok_or("one of the checks listed"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people
    Text,
    /// One JSON document
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Workflow commands, which GitHub shows at their lines
    Annotations,
}

impl Args {
    /// Whether stdout carries JSON.
    pub fn wants_json(&self) -> bool {
        matches!(self.output, Output::Json | Output::Sarif)
    }
}

/// Runs the command; 1 if anything is an error.
///
/// # Errors
/// The repository or the core can not be had.
pub async fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let run = context.run();
    let request = Request {
        selection: args.stacks.selection(),
        shard: args.stacks.shard,
        rev: args.revisions.rev.clone(),
        base: args.revisions.base.clone(),
        ..Request::default()
    };
    let selected = selection::open(&run, &request).await?;
    let scope = Scope {
        all: args.stacks.all,
        update: args.update,
        skip: &args.skip,
    };
    let root = repository_root(&run.dir)?;
    let inspection = check::run(&run, &selection, &root, scope).await?;
    let text = match args.output {
        Output::Text => report::text(&inspection),
        Output::Json => json::document(&inspection),
        Output::Sarif => json::document(&report::sarif(&inspection)),
        Output::Annotations => workflow_commands(&report::annotations(&inspection)),
    };
    context.print(&text);
    Ok(u8::from(inspection.failed()))
}
