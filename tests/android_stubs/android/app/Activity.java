package android.app;

import android.content.ContentResolver;
import android.content.Context;
import android.content.Intent;
import android.content.res.AssetManager;
import android.os.Bundle;
import android.view.View;
import java.io.File;
import org.jetbrains.annotations.Nullable;

public class Activity extends Context {
    public static final int RESULT_OK = -1;

    @Override public Context getApplicationContext() { return this; }
    @Override public AssetManager getAssets() { throw new UnsupportedOperationException(); }
    @Override public File getNoBackupFilesDir() { throw new UnsupportedOperationException(); }
    @Override public ContentResolver getContentResolver() { throw new UnsupportedOperationException(); }
    @Override public int checkSelfPermission(String permission) { return -1; }
    protected void onCreate(@Nullable Bundle savedInstanceState) {}
    protected void onDestroy() {}
    protected void onActivityResult(int requestCode, int resultCode, @Nullable Intent data) {}
    public void setContentView(View view) {}
    public void startActivityForResult(Intent intent, int requestCode) {}
    public final void requestPermissions(String[] permissions, int requestCode) {}
}
