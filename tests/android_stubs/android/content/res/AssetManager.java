package android.content.res;

import java.io.IOException;
import java.io.InputStream;
import org.jetbrains.annotations.Nullable;

/** Not final, as the real one is: a test makes one over a folder. */
public class AssetManager {
    public InputStream open(String fileName) throws IOException { throw new UnsupportedOperationException(); }
    public @Nullable String[] list(String path) throws IOException { throw new UnsupportedOperationException(); }
}
