"""What is allowed and probably not meant."""

from headbay.domain.document.model import Document
from headbay.domain.document.problem import Problem
from headbay.domain.document.step import SecretRef, StepSettings

__all__ = ["warnings"]


def warnings(document: Document) -> list[Problem]:
    """Warnings about a valid document, in its order."""
    defaults = document.defaults or StepSettings()
    found: list[Problem] = []
    for index, step in enumerate(document.steps):
        path = f"steps[{index}]"
        env = (defaults.env or {}) | (step.env or {})
        secret = any(isinstance(value, SecretRef) for value in env.values())
        if secret and (step.repeat or defaults.repeat) is None:
            found.append(
                Problem(
                    path=path,
                    code="REPEAT_BESIDE_SECRET",
                    message=f"'{step.name}' uses a secret and may be repeated when an attempt's "
                    "outcome is unknown",
                    fix="write `repeat: never` if it publishes or changes something, or "
                    "`repeat: safe` if running it twice does no harm",
                )
            )
        if step.trigger is not None and not step.depends_on:
            found.append(
                Problem(
                    path=f"{path}.trigger",
                    code="TRIGGER_WITHOUT_DEPENDENCY",
                    message=f"'{step.name}' depends on nothing, so its trigger has no effect",
                    fix="add `dependsOn` or remove `trigger`",
                )
            )
    return found
