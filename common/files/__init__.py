"""Files of owners and researchers: tables and studies."""
