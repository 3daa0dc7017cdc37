//! Measures the indexes of the crate dynamo-kv-router by a plan of
//! BenchmarkIndex for one round, and prints the figures as one JSON object.
//!
//!     bench-kv-router crtc|radix batches|singles|churn PLAN
//!
//! crtc is ConcurrentRadixTreeCompressed behind ThreadPoolIndexer with two event
//! threads, radix is RadixTree. What a plan is, and how its file is laid out, says
//! the type indexPlan in bench/indexplan_test.go.

mod clock;
mod index;
mod measure;
mod plan;

use std::error::Error;
use std::process::ExitCode;

use plan::Plan;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(told) => {
            println!("{told}");
            ExitCode::SUCCESS
        }
        Err(err) => {
            eprintln!("bench-kv-router: {err}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<String, Box<dyn Error>> {
    let [contender, part, file] = args else {
        return Err("usage: bench-kv-router crtc|radix batches|singles|churn PLAN".into());
    };
    let plan = Plan::read(file)?;
    let told = match contender.as_str() {
        "crtc" => measure::crtc(&plan, part)?,
        "radix" => measure::radix(&plan, part)?,
        other => return Err(format!("contender {other:?}: must be crtc or radix").into()),
    };
    let fields: Vec<String> = told.iter().map(|(name, v)| format!("{name:?}:{v}")).collect();
    Ok(format!("{{{}}}", fields.join(",")))
}
