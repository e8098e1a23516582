//! A CEL expression with bounds: its length, its nesting, and what its evaluation costs (`crates/cel/src/cel_bounds.rs`). CEL has no loops
//! except those over lists and maps, no input and no output.

use cel::{
    Context, Env, ExecutionError, Value as CelValue,
    common::{
        ast::IdedExpr,
        types::{CelBool, CelString},
        value::{CowVal, Val},
    },
};
use serde_json::Value;

use crate::{
    cel_bounds::{bound, parts},
    cel_counting::{EVALUATION_TIME, Left},
};

/// The maximum length of an expression in bytes.
pub const LONGEST: usize = 4096;
/// The maximum nesting of an expression.
const DEEPEST: u32 = 60;
/// The stack size of the parser in bytes; only the used part is allocated.
const PARSER_STACK: usize = 256 * 1024 * 1024;

/// A parsed expression.
#[derive(Debug)]
pub struct CelExpression {
    expression: IdedExpr,
    /// True if it makes texts or lists.
    counts: bool,
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CelError {
    /// A field or an item does not exist.
    #[error("{0}")]
    Missing(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl CelExpression {
    /// Parses an expression.
    ///
    /// # Errors
    /// Too long, nested too deeply, or not CEL; in one line.
    pub fn compile(source: &str) -> Result<Self, String> {
        Self::compile_with(source, &Env::stdlib())
    }

    /// The same with the macros of an environment.
    ///
    /// # Errors
    /// As [`CelExpression::compile`].
    pub fn compile_with(source: &str, env: &Env) -> Result<Self, String> {
        if source.len() > LONGEST {
            return Err(format!("an expression may have at most {LONGEST} bytes"));
        }
        // The parser recurses as deep as the expression, before the limit can be checked: it gets a stack
        // that is large enough.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(PARSER_STACK);
            let parsing = thread
                .spawn_scoped(scope, || Self::parse(source, env))
                .map_err(|error| error.to_string())?;
            parsing.join().unwrap_or_else(|_| Err("not CEL".to_owned()))
        })
    }

    /// The names of the functions that it calls, operators included.
    pub fn functions(&self) -> Vec<String> {
        let references = self.expression.references();
        references.functions().into_iter().map(str::to_owned).collect()
    }

    /// Returns true if it reads a variable.
    pub fn reads(&self, variable: &str) -> bool {
        self.expression.references().has_variable(variable)
    }

    fn parse(source: &str, env: &Env) -> Result<Self, String> {
        let program = env.compile(source).map_err(|error| {
            let text = error.to_string();
            text.lines().next().unwrap_or("not CEL").to_owned()
        })?;
        let mut expression = program.expression().clone();
        if depth(&mut expression) > DEEPEST + 1 {
            return Err(format!("nested more than {DEEPEST} levels deep"));
        }
        Ok(Self {
            counts: bound(&mut expression),
            expression,
        })
    }

    /// The value for a context with values of this extent. The context has the functions of [`add_counting`].
    ///
    /// [`add_counting`]: crate::cel_counting::add_counting
    ///
    /// # Errors
    /// Too costly for this context, or the evaluation failed.
    pub fn evaluate<'v>(
        &self,
        context: &Context<'_, 'v>,
        extent: CostInput,
    ) -> Result<Box<dyn Val + 'v>, CelError> {
        if !self.counts {
            let value = CelValue::resolve_val(&self.expression, context);
            return value.map(CowVal::into_owned).map_err(failed);
        }
        let left = Left::new(extent.text);
        let mut context = context.new_inner_scope();
        left.add_to(&mut context);
        let value = CelValue::resolve_val(&self.expression, &context);
        match left.is_exceeded() {
            true if left.is_late() => Err(CelError::Other(format!(
                "too costly for this object: it took longer than {} ms",
                EVALUATION_TIME.as_millis()
            ))),
            true => Err(CelError::Other(
                "too costly for this object: its loops have too many steps, or it makes texts of more than 4 MiB"
                    .to_owned(),
            )),
            false => value.map(CowVal::into_owned).map_err(failed),
        }
    }

    /// The string that it returns; `None` if it returns something else.
    ///
    /// # Errors
    /// As [`CelExpression::evaluate`].
    pub fn text(&self, context: &Context, extent: CostInput) -> Result<Option<String>, CelError> {
        let value = self.evaluate(context, extent)?;
        let text = value.downcast_ref::<CelString>();
        Ok(text.map(|text| text.inner().to_owned()))
    }

    /// Returns true if it is true.
    ///
    /// # Errors
    /// As [`CelExpression::evaluate`]; or it returns something else than true or false.
    pub fn holds(&self, context: &Context, extent: CostInput) -> Result<bool, CelError> {
        let value = self.evaluate(context, extent)?;
        value.downcast_ref::<CelBool>().map_or_else(
            || {
                let type_of = value.get_type().name();
                Err(CelError::Other(format!(
                    "it returns {type_of}, not true or false"
                )))
            },
            |answer| Ok(*answer.inner()),
        )
    }
}

fn failed(error: ExecutionError) -> CelError {
    let text = error.to_string().chars().take(300).collect();
    match error {
        ExecutionError::NoSuchKey(_) | ExecutionError::IndexOutOfBounds(_) => CelError::Missing(text),
        _ => CelError::Other(text),
    }
}

/// The levels of an expression.
fn depth(expression: &mut IdedExpr) -> u32 {
    1 + parts(expression).into_iter().map(depth).max().unwrap_or(0)
}

/// What limits the steps of an expression for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostInput {
    /// The length of the longest text in bytes.
    text: u64,
}

impl CostInput {
    /// The extent of a value.
    pub fn measure(value: &Value) -> Self {
        match value {
            Value::Array(items) => items.iter().fold(Self::default(), Self::and),
            Value::Object(fields) => fields
                .iter()
                .fold(Self::default(), |all, (key, value)| all.and_text(key).and(value)),
            Value::String(text) => Self::default().and_text(text),
            _ => Self::default(),
        }
    }

    /// The extent of two values beside each other.
    #[must_use]
    pub fn and(self, value: &Value) -> Self {
        let other = Self::measure(value);
        Self {
            text: self.text.max(other.text),
        }
    }

    fn and_text(self, text: &str) -> Self {
        Self {
            text: self.text.max(text.len() as u64),
        }
    }
}
