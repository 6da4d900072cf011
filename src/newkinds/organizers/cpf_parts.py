"""The short name of newkinds.encoders.organizers.cpf_parts."""

from ..encoders.organizers.cpf_parts import *  # noqa: F403
