//! A CEL expression: parsed within a limit of its length and its nesting, and evaluated. CEL has no loops except those over
//! lists and maps, no input and no output. Nothing here limits what an evaluation costs: policies are evaluated in processes
//! that can be ended (`crates/policy-sets/src/workers/`), and rules of readiness have few loops (`crates/kubernetes/src/health/cel.rs`).

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
/// The stack size of the parser in bytes; only the used part is allocated.
const PARSER_STACK: usize = 256 * 1024 * 1024;

/// A function of a context that gets its arguments uncopied.
pub type CelFunction = Box<
    dyn for<'c, 'v> Fn(&mut FunctionContext<'c, 'v>) -> Result<CowVal<'c, 'v>, ExecutionError> + Send + Sync,
>;

/// A parsed expression.
#[derive(Debug)]
pub struct CelExpression {
    expression: IdedExpr,
}

/// Why an expression cannot be used, in one line.
#[derive(Debug, thiserror::Error)]
pub enum CelSyntaxError {
    /// It is longer than [`LONGEST`] bytes.
    #[error("an expression may have at most {LONGEST} bytes")]
    TooLong,
    /// It is nested too deeply.
    #[error("nested more than {DEEPEST} levels deep")]
    TooDeep,
    /// There is no thread to parse it.
    #[error("{0}")]
    Thread(std::io::Error),
    /// The parser refuses it.
    #[error("{0}")]
    NotCel(String),
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
    pub fn compile(source: &str) -> Result<Self, CelSyntaxError> {
        Self::compile_with(source, &Env::stdlib())
    }

    /// Parses an expression with the macros of an environment.
    ///
    /// # Errors
    /// Errors of [`CelExpression::compile`].
    pub fn compile_with(source: &str, env: &Env) -> Result<Self, CelSyntaxError> {
        if source.len() > LONGEST {
            return Err(CelSyntaxError::TooLong);
        }
        // The parser recurses as deep as the expression, before the limit can be checked: it gets a stack
        // that is large enough.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(PARSER_STACK);
            let parsing = thread
                .spawn_scoped(scope, || Self::parse(source, env))
                .map_err(CelSyntaxError::Thread)?;
            let not_cel = |_| Err(CelSyntaxError::NotCel("not CEL".to_owned()));
            parsing.join().unwrap_or_else(not_cel)
        })
    }

    /// The names of the functions that it calls, operators included.
    pub fn functions(&self) -> Vec<String> {
        let references = self.expression.references();
        references.functions().into_iter().map(str::to_owned).collect()
    }

    /// The names of the variables that it reads.
    pub fn variables(&self) -> Vec<String> {
        let references = self.expression.references();
        references.variables().into_iter().map(str::to_owned).collect()
    }

    /// Returns true if it reads a variable.
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

    /// How many loops are within each other.
    pub fn nested_loops(&self) -> u32 {
        nested_loops(&self.expression)
    }

    /// The value for a context.
    ///
    /// # Errors
    /// The evaluation failed.
    pub fn evaluate<'v>(&self, context: &Context<'_, 'v>) -> Result<Box<dyn Val + 'v>, CelError> {
        let value = CelValue::resolve_val(&self.expression, context);
        value.map(CowVal::into_owned).map_err(failed)
    }

    /// The string that it returns; `None` if it returns something else.
    ///
    /// # Errors
    /// Errors of [`CelExpression::evaluate`].
    pub fn text(&self, context: &Context) -> Result<Option<String>, CelError> {
        let value = self.evaluate(context)?;
        let text = value.downcast_ref::<CelString>();
        Ok(text.map(|text| text.inner().to_owned()))
    }

    /// Returns true if it is true of these numbers.
    ///
    /// # Errors
    /// Errors of [`CelExpression::holds`].
    pub fn holds_for(&self, numbers: &BTreeMap<&str, f64>) -> Result<bool, CelError> {
        let mut context = Context::default();
        for (name, number) in numbers {
            context.add_variable_from_value(*name, *number);
        }
        self.holds(&context)
    }

    /// Returns true if it is true.
    ///
    /// # Errors
    /// Errors of [`CelExpression::evaluate`]; or it returns something else than true or false.
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

/// The levels of an expression.
fn depth(expression: &IdedExpr) -> u32 {
    1 + parts(expression).into_iter().map(depth).max().unwrap_or(0)
}

fn nested_loops(expression: &IdedExpr) -> u32 {
    // A loop over nothing only binds a name (`cel.bind`).
    let is_loop = match &expression.expr {
        Expr::Comprehension(one) => {
            !matches!(&one.iter_range.expr, Expr::List(list) if list.elements.is_empty())
        }
        _ => false,
    };
    let inner = parts(expression).into_iter().map(nested_loops).max();
    u32::from(is_loop) + inner.unwrap_or(0)
}

/// The expressions in an expression.
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
