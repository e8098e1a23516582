//! Generates the reference pages in `docs/reference/` and the man pages from the program itself. A test
//! compares the pages with this output.

use std::path::{Path, PathBuf};

use clap::Command;
use serde_json::Value;

use super::CliContext;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::plan_document::PlanDocument,
};
use konverge_config::json_schema;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The page
    #[arg(value_enum)]
    page: DocPage,
    /// The folder for man pages
    #[arg(long, value_name = "DIR", required_if_eq("page", "man"))]
    to: Option<PathBuf>,
}

/// The pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DocPage {
    /// docs/reference/commands.md
    Commands,
    /// docs/reference/konverge-yaml.md
    Config,
    /// docs/reference/environment.md
    Environment,
    /// docs/reference/errors.md
    Errors,
    /// docs/reference/plan.schema.json
    Plan,
    /// A man page for every command
    Man,
}

/// Prints a page.
///
/// # Errors
/// A man page cannot be written.
pub fn run(args: &Args, command: Command, context: &CliContext) -> Result<u8, UserError> {
    match (args.page, &args.to) {
        (DocPage::Commands, _) => context.print(&commands(command)),
        (DocPage::Config, _) => context.print(&config()),
        (DocPage::Environment, _) => context.print(&super::environment::page()),
        (DocPage::Errors, _) => context.print(&errors()),
        (DocPage::Plan, _) => context.print(&plan_schema()),
        (DocPage::Man, to) => man(
            command,
            &context.current_dir.join(to.as_deref().unwrap_or(Path::new("."))),
        )?,
    }
    Ok(0)
}

/// `konverge.1`, `konverge-preview.1` and so on, without internal commands.
fn man(command: Command, folder: &Path) -> Result<(), UserError> {
    let failed = |error: std::io::Error| {
        UserError::new(ErrorKind::Usage, format!("--to {}: {error}", folder.display()))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(command, folder).map_err(failed)
}

/// The meaning of the exit codes; the codes themselves are in [`ErrorKind::exit_code`].
const EXIT_CODES: [(u8, &str); 7] = [
    (
        0,
        "ok; also of an apply whose stacks wait, such as for the promotion of a rollout",
    ),
    (1, "error"),
    (2, "changes or drift, only with `--exit-code`"),
    (3, "stopped by review or policy"),
    (4, "the lease is held"),
    (64, "wrong usage"),
    (130, "interrupted"),
];

fn errors() -> String {
    let mut text = "# Exit codes and error kinds\n\nGenerated from the program by `konverge __reference errors`.\n\n## Exit codes\n\n| code | meaning |\n|---|---|\n".to_owned();
    for (code, meaning) in EXIT_CODES {
        text.push_str(&format!("| {code} | {meaning} |\n"));
    }
    text.push_str("\n## Error kinds\n\nWith `--output json` an error is `{\"error\": {\"kind\", \"message\", \"file\", \"line\", \"column\", \"hints\"}}` on stdout; `file`, `line` and `column` are there where there is a place. The output `failure-reason` of the action is the kind.\n\n| kind | what went wrong | exit code |\n|---|---|---|\n");
    let schema = schemars::schema_for!(ErrorKind).to_value();
    for kind in schema["oneOf"].as_array().into_iter().flatten() {
        let word = &kind["const"];
        let code = serde_json::from_value::<ErrorKind>(word.clone()).map_or(1, ErrorKind::exit_code);
        let meaning = value_text(kind).replace('\n', " ");
        // The code has its own column.
        let meaning = meaning.split(" (exit code").next().unwrap_or_default();
        text.push_str(&format!(
            "| `{}` | {}. | {code} |\n",
            word.as_str().unwrap_or_default(),
            meaning.trim_end_matches('.')
        ));
    }
    text
}

/// The JSON Schema of the plan document.
fn plan_schema() -> String {
    let schema = serde_json::to_string_pretty(&PlanDocument::schema());
    schema.expect("a schema has string keys only") + "\n"
}

fn commands(command: Command) -> String {
    let mut text =
        "# Commands\n\nGenerated from the program's own help by `konverge __reference commands`.\n"
            .to_owned();
    let mut root = command.term_width(100);
    root.build();
    describe(&mut root, "", &mut text);
    text
}

fn describe(command: &mut Command, above: &str, text: &mut String) {
    let name = if above.is_empty() {
        command.get_name().to_owned()
    } else {
        format!("{above} {}", command.get_name())
    };
    let level = "#".repeat(2 + name.matches(' ').count().min(3));
    text.push_str(&format!(
        "\n{level} {name}\n\n```text\n{}\n```\n",
        command.render_long_help().to_string().trim_end()
    ));
    for child in command.get_subcommands_mut() {
        if !child.is_hide_set() && child.get_name() != "help" {
            describe(child, &name, text);
        }
    }
}

fn config() -> String {
    let schema = json_schema();
    let mut text = "# konverge.yaml\n\nGenerated from the JSON Schema by `konverge __reference config`; `konverge config schema` prints it.\n\nThe file lies at the repository's root; it and every key are optional. An unknown key is an error that names the nearest known one.\n".to_owned();
    table(&schema, &schema, "", &mut text);
    let definitions = schema["$defs"].as_object();
    for (name, definition) in definitions.into_iter().flatten() {
        if definition.get("properties").is_some() {
            table(&schema, definition, name, &mut text);
        } else if let Some(words) = value_words(definition) {
            text.push_str(&format!("\n## {name}\n\n{}\n\n{words}", value_text(definition)));
        }
    }
    text
}

fn table(schema: &Value, object: &Value, name: &str, text: &mut String) {
    let title = if name.is_empty() { "Top level" } else { name };
    let intro = if name.is_empty() {
        String::new()
    } else {
        format!("{}\n\n", value_text(object))
    };
    text.push_str(&format!(
        "\n## {title}\n\n{intro}| key | type | meaning |\n|---|---|---|\n"
    ));
    for (key, property) in object["properties"].as_object().into_iter().flatten() {
        let meaning = value_text(property).replace('|', "\\|").replace('\n', " ");
        text.push_str(&format!("| `{key}` | {} | {meaning} |\n", kind(schema, property)));
    }
}

fn value_text(value: &Value) -> String {
    value["description"]
        .as_str()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The values of an enum with their meanings.
fn value_words(definition: &Value) -> Option<String> {
    let choices = definition["oneOf"].as_array()?;
    let lines = choices.iter().filter_map(|choice| {
        let word = choice["const"].as_str()?;
        Some(format!("- `{word}`: {}\n", value_text(choice)))
    });
    Some(lines.collect())
}

fn kind(schema: &Value, property: &Value) -> String {
    if let Some(name) = property["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        let plain = schema["$defs"][name]["type"]
            .as_str()
            .filter(|_| schema["$defs"][name].get("properties").is_none());
        return match plain {
            Some(plain) if schema["$defs"][name].get("oneOf").is_none() => plain.to_owned(),
            _ => format!("[{name}](#{})", name.to_lowercase()),
        };
    }
    if let Some(some) = property["anyOf"].as_array().and_then(|all| all.first()) {
        return kind(schema, some);
    }
    let plain = match &property["type"] {
        Value::String(word) => word.clone(),
        Value::Array(words) => words
            .iter()
            .filter_map(Value::as_str)
            .filter(|word| *word != "null")
            .collect::<Vec<_>>()
            .join(" or "),
        _ => String::new(),
    };
    match plain.as_str() {
        "array" => format!("list of {}", kind(schema, &property["items"])),
        "object" if property.get("additionalProperties").is_some_and(Value::is_object) => {
            format!("map to {}", kind(schema, &property["additionalProperties"]))
        }
        _ => plain,
    }
}
