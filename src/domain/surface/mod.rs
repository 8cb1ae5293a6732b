//! Which tools a run can see, and what a call of one is by nature.
//!
//! A call outside the surface is refused here, at execution, not only hidden in a list. A surface can only shrink:
//! there is no way to add a tool to one that exists, so nothing that is registered later slips past a narrowing.

pub mod companion;
pub mod contract;
pub mod device;
pub mod narrow;
pub mod nature;
pub mod outputs;
pub mod promise;
pub mod shell;
pub mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::id::{CallId, ToolName};
use crate::request::why::Why;
use crate::request::{Refusal, Request};

use narrow::Narrowing;
use nature::Nature;
use tool::Tool;

/// The tools that a run can see.
#[derive(Debug, Clone, Default)]
pub struct Surface {
    tools: Arc<BTreeMap<ToolName, Arc<Tool>>>,
    /// Known, and in no list: a call of one is judged, and refused by what hides it.
    hidden: Arc<BTreeSet<ToolName>>,
    /// Of these, the ones that are refused before anything else: their definition waits for a person.
    held: Arc<BTreeSet<ToolName>>,
}

impl Surface {
    /// All of these. Of two with one name the later one counts; the registry that makes tools sees to distinct names.
    #[must_use]
    pub fn new(tools: impl IntoIterator<Item = Arc<Tool>>) -> Surface {
        let tools = tools.into_iter().map(|tool| (tool.name().clone(), tool)).collect();
        Surface { tools: Arc::new(tools), hidden: Arc::default(), held: Arc::default() }
    }

    /// The same, with these in no list. Whoever calls one all the same is told why not, not that there is none.
    #[must_use]
    pub fn hiding(self, names: BTreeSet<ToolName>) -> Surface {
        Surface { hidden: Arc::new(names), ..self }
    }

    /// The same, with these refused until somebody has approved what they are by now.
    #[must_use]
    pub fn holding(self, names: BTreeSet<ToolName>) -> Surface {
        Surface { held: Arc::new(names), ..self }
    }

    /// The tools that are listed, in the order of their names.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.values().filter(|tool| !self.hidden.contains(tool.name()))
    }

    /// One of them.
    #[must_use]
    pub fn tool(&self, name: &ToolName) -> Option<&Arc<Tool>> {
        self.tools.get(name)
    }

    /// What is left for a child.
    #[must_use]
    pub fn narrowed(&self, narrowing: &Narrowing) -> Surface {
        let kept = self.tools.iter().filter(|(_, tool)| narrowing.keeps(tool));
        let tools = kept.map(|(name, tool)| (name.clone(), Arc::clone(tool))).collect();
        Surface { tools: Arc::new(tools), hidden: Arc::clone(&self.hidden), held: Arc::clone(&self.held) }
    }

    /// Finds the tool, checks the input, and says what the call is by nature.
    ///
    /// # Errors
    /// A refusal when the run does not see the tool or the input does not fit.
    pub fn resolve(&self, request: Request) -> Result<Call, Refusal> {
        let wish = request.wish();
        let Some(tool) = self.tools.get(&wish.tool) else {
            let tool = wish.tool.clone();
            return Err(request.refuse(Why::NoSuchTool { tool }));
        };
        if self.held.contains(tool.name()) {
            let tool = wish.tool.clone();
            return Err(request.refuse(Why::DefinitionChanged { tool }));
        }
        match tool.nature(&wish.args, &wish.facts) {
            Ok(nature) => Ok(Call { tool: Arc::clone(tool), nature: Arc::new(nature), request }),
            Err(why) => Err(request.refuse(why)),
        }
    }
}

/// A request for a tool that its run can see, with an input that fits.
#[derive(Debug)]
#[must_use = "each call is answered: judge it or refuse it"]
pub struct Call {
    request: Request,
    tool: Arc<Tool>,
    nature: Arc<Nature>,
}

impl Call {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.request.call()
    }

    /// The request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &Arc<Tool> {
        &self.tool
    }

    /// What it is by nature.
    #[must_use]
    pub fn nature(&self) -> &Arc<Nature> {
        &self.nature
    }

    /// Ends it before its start.
    pub fn refuse(self, why: Why) -> Refusal {
        self.request.refuse(why)
    }

    /// For the stations behind, which take the request out when the call ends.
    pub(crate) fn into_request(self) -> Request {
        self.request
    }
}
