"""Names that say nothing about whoever recorded a session: what `anonymise` leaves as it is.

Everything in here is public: the tools that the well-known agents bring along, the agents themselves, and the words
that model ids are made of. A name that is missing costs a reader its meaning and nothing else: it becomes a digest.
"""

import re

LONG = 12
"""Characters from which on a text of the recording must not be found in what is shared."""

TOOLS_OF: dict[str, tuple[str, ...]] = {
    # code.claude.com/docs/en/tools-reference, and what 1.0 to 2.1.332 sent or logged
    "claude-code": (
        "Agent", "AskUserQuestion", "Bash", "BashOutput", "CronCreate", "CronDelete", "CronList",
        "DeferredToolPlaceholder", "Edit", "EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree", "Glob",
        "Grep", "KillBash", "KillShell", "ListAgents", "ListMcpResourcesTool", "LS", "LSP", "Monitor", "MultiEdit",
        "NotebookEdit", "NotebookRead", "PowerShell", "Read", "ReadMcpResourceTool", "ReportFindings",
        "ScheduleWakeup", "SendMessage", "Skill", "SlashCommand", "StructuredOutput", "Task", "TaskCreate", "TaskGet",
        "TaskList", "TaskOutput", "TaskStop", "TaskUpdate", "TodoRead", "TodoWrite", "ToolSearch", "WebFetch",
        "WebSearch", "Workflow", "Write", "exit_plan_mode", "web_search",
    ),
    # github.com/openai/codex codex-rs/core/src/tools, and what 0.40 to 0.171 sent or logged
    "codex": (
        "apply_patch", "close_agent", "container.exec", "create_goal", "exec", "exec_command", "get_goal",
        "grep_files", "image_generation", "js_repl", "list_agents", "list_dir", "list_mcp_resource_templates",
        "list_mcp_resources", "local_shell", "multi_agent_v1", "read_file", "read_mcp_resource",
        "report_agent_job_result", "request_permissions", "request_user_input", "resume_agent", "send_input",
        "send_message", "shell", "shell_command", "spawn_agent", "spawn_agents_on_csv", "tool_search", "unified_exec",
        "update_goal", "update_plan", "view_image", "wait", "wait_agent", "web_search", "write_stdin",
    ),
    # opencode.ai/docs/tools, github.com/sst/opencode packages/opencode/src/tool
    "opencode": (
        "apply_patch", "bash", "batch", "codesearch", "edit", "glob", "grep", "invalid", "list", "lsp", "multiedit",
        "patch", "plan_enter", "plan_exit", "question", "read", "skill", "task", "todoread", "todowrite", "webfetch",
        "websearch", "write",
    ),
    # github.com/cline/cline src/shared/tools.ts; the second half: names in its message files, and those of its CLI 3
    "cline": (
        "access_mcp_resource", "act_mode_respond", "apply_patch", "ask_followup_question", "attempt_completion",
        "browser_action", "condense", "execute_command", "focus_chain", "generate_explanation",
        "list_code_definition_names", "list_files", "load_mcp_documentation", "new_rule", "new_task",
        "plan_mode_respond", "read_file", "replace_in_file", "report_bug", "search_files", "search_subagent",
        "summarize_task", "use_mcp_tool", "web_fetch", "web_search", "write_to_file",
        "ask", "command", "completion_result", "editedExistingFile", "editor", "fileDeleted",
        "listCodeDefinitionNames", "listFilesRecursive", "listFilesTopLevel", "newFileCreated", "readFile",
        "read_files", "run_commands", "searchFiles", "search_codebase", "webFetch", "webSearch",
    ),
    # github.com/badlogic/pi-mono packages/coding-agent/src/core/tools
    "pi": ("bash", "edit", "find", "grep", "ls", "read", "write"),
    # github.com/google-gemini/gemini-cli packages/core/src/tools/tool-names.ts and definitions/
    "gemini-cli": (
        "activate_skill", "ask_user", "cli_help", "codebase_investigator", "complete_task", "delegate_to_agent",
        "enter_plan_mode", "exit_plan_mode", "get_internal_docs", "glob", "google_web_search", "grep_search",
        "invoke_agent", "list_directory", "read_file", "read_many_files", "replace", "run_shell_command",
        "save_memory", "search_file_content", "tracker_add_dependency", "tracker_create_task", "tracker_get_task",
        "tracker_list_tasks", "tracker_update_task", "tracker_visualize", "update_topic", "web_fetch", "write_file",
        "write_todos",
    ),
    # github.com/QwenLM/qwen-code packages/core/src/tools/tool-names.ts
    "qwen-code": (
        "agent", "ask_user_question", "edit", "exit_plan_mode", "glob", "grep_search", "list_directory", "lsp",
        "read_file", "read_many_files", "run_shell_command", "save_memory", "skill", "task", "task_create",
        "task_get", "task_list", "task_output", "task_stop", "task_update", "todo_write", "web_fetch", "web_search",
        "write_file",
    ),
    # github.com/OpenHands/OpenHands agenthub/codeact_agent/tools, and what its SDK 1.58 sent
    "openhands": (
        "browser", "delegate", "edit_file", "execute_bash", "execute_ipython_cell", "fetch", "file_editor", "finish",
        "request_condensation", "str_replace_editor", "task_tracker", "terminal", "think", "web_read",
    ),
    # github.com/SWE-agent/SWE-agent tools/*/config.yaml; mini-swe-agent has `bash` only
    "swe-agent": (
        "bash", "create", "edit", "find_file", "goto", "insert", "open", "scroll_down", "scroll_up", "search_dir",
        "search_file", "str_replace_editor", "submit", "view_image",
    ),
}  # fmt: skip
"""Tools that agents bring along, by agent. What a user adds (MCP servers, own tools) is not in here."""
TOOLS = frozenset(name for names in TOOLS_OF.values() for name in names)

AGENTS = frozenset(
    (*TOOLS_OF, "aider", "aiperf", "mini-swe-agent", "mooncake", "unknown", "weka",
     "synthetic-atlas", "synthetic-quill", "synthetic-weaver")
)  # fmt: skip
SOURCES = AGENTS | {
    "aiperf-multi-turn", "atif", "har", "litellm", "mooncake-aiperf", "mooncake-dynamo", "otel", "recorded", "tracelab",
}  # fmt: skip
"""First words of `Header.source`: what read or made a session."""
STOPS = frozenset(
    ("aborted", "cancelled", "completed", "content_filter", "end_turn", "error", "failed", "function_call",
     "incomplete", "length", "max_output_tokens", "max_tokens", "model_context_window_exceeded", "pause_turn",
     "refusal", "stop", "stop_sequence", "tool_calls", "tool_use")
)  # fmt: skip
EFFORTS = frozenset(("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"))
MEDIA = frozenset(
    ("application/pdf", "audio/mpeg", "audio/wav", "image/gif", "image/jpeg", "image/png", "image/svg+xml",
     "image/webp", "video/mp4")
)  # fmt: skip
OTHER_MEDIA = "application/octet-stream"
FIGURES = frozenset(("prompt", "cached", "completion", "reasoning", "start", "first", "end"))
"""Keys of `Call.marks`."""
VERSION = re.compile(r"([0-9]{1,2}(?:\.[0-9]{1,3}){0,2})(?:[-+][A-Za-z0-9.+-]*|\.[A-Za-z][A-Za-z0-9.+-]*)?")
"""A whole version; its first three numbers are kept. Four numbers may be an address."""

_FAMILY_WORDS = """
claude gpt o chatgpt codex gemini gemma qwen qwq qvq llama mistral mixtral ministral magistral codestral devstral
voxtral pixtral deepseek glm chatglm kimi minimax grok phi granite command nova nemotron step seed ernie hunyuan
internlm starcoder falcon olmo smollm longcat mimo composer
"""
_NAME_WORDS = """
opus sonnet haiku fable mythos instant fast thinking think reasoning reasoner latest preview beta exp experimental oss
mini nano turbo pro max flash lite ultra coder code next plus instruct chat base it vl omni maverick scout large
medium small tiny nemo distill prover speciale air super free high low hf moe vision cloud dynamic awq gptq gguf qat
mlx a r
"""
_HOST_WORDS = """
anthropic openai google meta mistralai ai zai z org alibaba thudm moonshotai xai x nvidia microsoft ibm cohere amazon
cohereforai bytedance tencent baidu allenai xiaomi stepfun redhatai unsloth cursor
bedrock vertex azure openrouter litellm proxy converse ollama vllm groq together fireworks cerebras
"""
_FAMILIES = frozenset(_FAMILY_WORDS.split())
_HOSTS = _FAMILIES | frozenset(_HOST_WORDS.split())
_WORDS = _HOSTS | frozenset(_NAME_WORDS.split())
_NUMBERED = _FAMILIES | {"k", "m", "r", "small", "medium", "large"}
"""Words that a version may follow without a sign between: qwen3, k2."""
_ONLY_NUMBERED = frozenset({"o", "k", "m"})

_YEAR, _MONTH, _DAY = "20[2-9][0-9]", "(?:0[1-9]|1[0-2])", "(?:0[1-9]|[12][0-9]|3[01])"
_DATE = rf"{_YEAR}(?:{_MONTH}{_DAY}|-{_MONTH}-{_DAY})"
_PIECE = re.compile(
    rf"(?:(?P<date>{_DATE}|{_MONTH}-?{_DAY}|{_MONTH}-{_YEAR}|2[3-9]{_MONTH}(?:{_DAY})?|00[1-9])"
    r"|(?P<revision>v[0-9]{1,2}(?:[.-][0-9]{1,2})?)"
    r"|(?P<version>[0-9]{1,2}(?:[.-][0-9]{1,2})?|[0-9]{1,2}(?:\.[0-9])?[onv])"
    r"|(?P<size>[aer]?[0-9]{1,3}(?:\.[0-9]{1,2})?[bm]|[0-9]{1,2}x[0-9]{1,3}b|[0-9]{1,3}[ek])"
    r"|(?P<format>(?:fp|bf|nvfp|mxfp|int)[0-9]{1,2}|[0-9]{1,2}bit|w[0-9]{1,2}a[0-9]{1,2}|q[2-8]-(?:[01]|k(?:-[sml])?))"
    r"|(?P<word>[a-z]+)(?P<number>[0-9]{1,2}(?:\.[0-9]{1,2})?)?)(?:-|\Z)"
)
"""A part of a model's name, up to the sign before the next one: four numbers in a row are none."""
_MOST = {"date": 1, "revision": 1, "version": 1, "size": 3, "format": 2, "number": 2}
"""How often each may stand in a name: more figures than that may spell an address or an account."""
_MODEL = re.compile(
    r"(?P<hosts>(?:[a-z]+(?:-[a-z]+)*/){0,3})(?:(?:us|eu|jp|apac|au|global)\.)?(?:(?P<maker>[a-z]+)\.)?"
    rf"(?P<name>[a-z0-9][a-z0-9.-]*)(?:@{_DATE}|:(?P<tag>[a-z0-9.-]+))?"
)


def is_public_model(model: str) -> bool:
    """Whether a model id is a published name: a known family, public words, and a version, sizes and a date at most.

    Names of own fine-tunes, local paths, hosts, ports and accounts are not.
    """
    found = _MODEL.fullmatch(model.lower().replace("_", "-")) if model.isascii() and len(model) <= 80 else None
    if found is None:
        return False
    hosts = {word for word in re.split("[-/]", found["hosts"]) if word} | {found["maker"] or "openai"}
    name, tag = _pieces(found["name"]), _pieces(found["tag"] or "")
    if not hosts <= _HOSTS or name is None:
        return False
    if re.fullmatch("[0-9]", found["tag"] or ""):  # Bedrock's revision: -v1:0
        tag = [] if "revision" in dict(name[-1:]) else None
    if tag is None or (tag and tag[0][0] in ("date", "version")):  # a port, maybe
        return False
    kinds = [kind for kind, _ in (*name, *tag)]
    words = {said for kind, said in (*name, *tag) if kind == "word"}
    few = all(kinds.count(kind) <= most for kind, most in _MOST.items())
    return few and words <= _WORDS | _NUMBERED and not _FAMILIES.isdisjoint(s for k, s in name if k == "word")


def _pieces(name: str) -> list[tuple[str, str]] | None:
    """Kind and text of each part of a name; None where a part is of no known kind."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(name):
        piece = _PIECE.match(name, at)
        if piece is None:
            return None
        word, number = piece["word"], piece["number"]
        if word and ((number and word not in _NUMBERED) or (not number and word in _ONLY_NUMBERED)):
            return None
        found += [(kind, said) for kind, said in piece.groupdict().items() if said]
        at = piece.end()
    return found if not name.endswith("-") else None
