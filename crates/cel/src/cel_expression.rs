//! A CEL expression: parsed with limits for length and nesting, and evaluated. CEL has no loops except over lists
//! and maps, and no I/O. Nothing here limits the cost of an evaluation: policies are evaluated in worker processes
//! that can be killed (`crates/policy-sets/src/workers/`), and health rules may have only few nested loops
//! (`crates/kubernetes/src/health/cel.rs`).

use std::collections::BTreeMap;

use cel::{
    Context, Env, ExecutionError, FunctionContext, Value as CelValue,
    common::{
        ast::{EntryExpr, Expr, IdedExpr},
        types::{CelBool, CelString},
        value::{CowVal, Val},
    },
};

/// The maximum length of an expression in bytes.
pub const LONGEST: usize = 4096;
/// The maximum nesting of an expression.
const DEEPEST: u32 = 60;
/// The stack size of the parser's thread in bytes. Only the used part is allocated.
const PARSER_STACK: usize = 256 * 1024 * 1024;

/// A function for a context that receives its arguments without a copy.
pub type CelFunction = Box<
    dyn for<'c, 'v> Fn(&mut FunctionContext<'c, 'v>) -> Result<CowVal<'c, 'v>, ExecutionError> + Send + Sync,
>;

/// A parsed expression.
#[derive(Debug)]
pub struct CelExpression {
    expression: IdedExpr,
}

/// Reasons why an expression cannot be parsed, as one line.
#[derive(Debug, thiserror::Error)]
pub enum CelSyntaxError {
    /// The expression is longer than [`LONGEST`] bytes.
    #[error("an expression may have at most {LONGEST} bytes")]
    TooLong,
    /// The expression is nested too deeply.
    #[error("nested more than {DEEPEST} levels deep")]
    TooDeep,
    /// The thread of the parser cannot be started.
    #[error("{0}")]
    Thread(std::io::Error),
    /// The text is not CEL.
    #[error("{0}")]
    NotCel(String),
}

/// Reasons why an evaluation fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CelError {
    /// A field or an item does not exist.
    #[error("{0}")]
    Missing(String),
    /// Any other reason.
    #[error("{0}")]
    Other(String),
}

impl CelExpression {
    /// Parses an expression.
    ///
    /// # Errors
    /// The text is too long, nested too deeply, or not CEL.
    pub fn compile(source: &str) -> Result<Self, CelSyntaxError> {
        Self::compile_with(source, &Env::stdlib())
    }

    /// Parses an expression with the macros of an environment.
    ///
    /// # Errors
    /// The same as for [`CelExpression::compile`].
    pub fn compile_with(source: &str, env: &Env) -> Result<Self, CelSyntaxError> {
        if source.len() > LONGEST {
            return Err(CelSyntaxError::TooLong);
        }
        // The parser recurses before the nesting limit can be checked, so it runs on a thread with a large stack.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(PARSER_STACK);
            let parsing = thread
                .spawn_scoped(scope, || Self::parse(source, env))
                .map_err(CelSyntaxError::Thread)?;
            let not_cel = |_| Err(CelSyntaxError::NotCel("not CEL".to_owned()));
            parsing.join().unwrap_or_else(not_cel)
        })
    }

    /// Returns the names of all called functions, including operators.
    pub fn functions(&self) -> Vec<String> {
        let references = self.expression.references();
        references.functions().into_iter().map(str::to_owned).collect()
    }

    /// Returns the names of all variables that the expression reads.
    pub fn variables(&self) -> Vec<String> {
        let references = self.expression.references();
        references.variables().into_iter().map(str::to_owned).collect()
    }

    /// Returns true if the expression reads this variable.
    pub fn reads(&self, variable: &str) -> bool {
        self.expression.references().has_variable(variable)
    }

    fn parse(source: &str, env: &Env) -> Result<Self, CelSyntaxError> {
        let program = env.compile(source).map_err(|error| {
            let text = error.to_string();
            CelSyntaxError::NotCel(text.lines().next().unwrap_or("not CEL").to_owned())
        })?;
        let expression = program.expression().clone();
        if depth(&expression) > DEEPEST + 1 {
            return Err(CelSyntaxError::TooDeep);
        }
        Ok(Self { expression })
    }

    /// Returns the maximum number of nested loops.
    pub fn nested_loops(&self) -> u32 {
        nested_loops(&self.expression)
    }

    /// Evaluates the expression in a context.
    ///
    /// # Errors
    /// The evaluation fails.
    pub fn evaluate<'v>(&self, context: &Context<'_, 'v>) -> Result<Box<dyn Val + 'v>, CelError> {
        let value = CelValue::resolve_val(&self.expression, context);
        value.map(CowVal::into_owned).map_err(failed)
    }

    /// Evaluates the expression to a string; `None` if the value has another type.
    ///
    /// # Errors
    /// The same as for [`CelExpression::evaluate`].
    pub fn text(&self, context: &Context) -> Result<Option<String>, CelError> {
        let value = self.evaluate(context)?;
        let text = value.downcast_ref::<CelString>();
        Ok(text.map(|text| text.inner().to_owned()))
    }

    /// Returns true if the expression is true for these numbers.
    ///
    /// # Errors
    /// The same as for [`CelExpression::holds`].
    pub fn holds_for(&self, numbers: &BTreeMap<&str, f64>) -> Result<bool, CelError> {
        let mut context = Context::default();
        for (name, number) in numbers {
            context.add_variable_from_value(*name, *number);
        }
        self.holds(&context)
    }

    /// Returns true if the expression is true.
    ///
    /// # Errors
    /// The same as for [`CelExpression::evaluate`]; also a value that is not a boolean.
    pub fn holds(&self, context: &Context) -> Result<bool, CelError> {
        let value = self.evaluate(context)?;
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

/// Returns the nesting depth of an expression.
fn depth(expression: &IdedExpr) -> u32 {
    1 + parts(expression).into_iter().map(depth).max().unwrap_or(0)
}

fn nested_loops(expression: &IdedExpr) -> u32 {
    // `cel.bind` expands to a loop over an empty list, which only binds a name.
    let is_loop = match &expression.expr {
        Expr::Comprehension(one) => {
            !matches!(&one.iter_range.expr, Expr::List(list) if list.elements.is_empty())
        }
        _ => false,
    };
    let inner = parts(expression).into_iter().map(nested_loops).max();
    u32::from(is_loop) + inner.unwrap_or(0)
}

/// Returns the direct parts of an expression.
fn parts(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(one) => vec![
            &one.iter_range,
            &one.accu_init,
            &one.loop_cond,
            &one.loop_step,
            &one.result,
        ],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|one| entry(&one.expr)).collect(),
        Expr::Struct(made) => made.entries.iter().flat_map(|one| entry(&one.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
    }
}

fn entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}
